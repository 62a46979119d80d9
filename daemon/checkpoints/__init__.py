"""Saving arenas, and which checkpoints are kept."""
