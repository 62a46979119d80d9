"""The handle of a table with shards."""
