"""A simulation of the arena's one lock on machines with more cores than this one. See ../README.md."""
