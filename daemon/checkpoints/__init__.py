"""Saves and restores checkpoints, and decides which ones are kept."""
