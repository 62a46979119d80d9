"""Mixes: batches drawn from several tables."""
