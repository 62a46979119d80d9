"""Shared-memory segments: their names, their pages, and the removal of abandoned ones."""
