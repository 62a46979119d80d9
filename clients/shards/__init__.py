"""The handle of a table with shards, and what it does with the handles of its shards."""
