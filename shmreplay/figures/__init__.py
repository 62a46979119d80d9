"""Figures of an arena and of its items, read from shared memory."""
