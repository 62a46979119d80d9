"""The connection to a daemon and the arenas that a process is attached to."""
