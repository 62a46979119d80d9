"""The declaration of a table: its arguments, its shards, and the memory it needs."""
