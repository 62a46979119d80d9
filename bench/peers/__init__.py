"""Peers: other ways to do what we do, each in a process and an environment of its own. One adapter a file."""
