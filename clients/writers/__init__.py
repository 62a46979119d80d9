"""Actors: writers of one stream, of many, and of whole arrays."""
