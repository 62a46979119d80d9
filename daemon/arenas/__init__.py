"""Arenas over their life: created, adopted, restored, watched for the dead, dropped."""
