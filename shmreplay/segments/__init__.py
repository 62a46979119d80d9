"""Shared-memory segments: their names, pages and what a dead server leaves of them."""
