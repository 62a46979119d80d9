"""The handle of one table."""
