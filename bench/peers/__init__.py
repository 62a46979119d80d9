"""Peers: other libraries and ways to do what shmreplay does, each in its own process and environment."""
