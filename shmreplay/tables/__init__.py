"""What a table is, as declared: its arguments, its shards, and the memory it needs."""
