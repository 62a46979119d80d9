"""Learners: batches ahead of time, and views that copy nothing."""
