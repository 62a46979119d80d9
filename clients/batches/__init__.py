"""Batches of items, and the arguments that all calls reading items share."""
