"""The connection to a daemon, the arenas that this process has mapped, and a daemon of its own."""
