"""Checkpoint files and the directories that hold them."""
