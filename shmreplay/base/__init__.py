"""Helpers that know nothing of tables: checks of arguments, processes, memory of the host, JSON, TOML."""
