"""Batches drawn from several tables."""
