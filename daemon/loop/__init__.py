"""Helpers that know nothing of arenas: worker threads, bounded waits, lock files, listening sockets, HTTP."""
