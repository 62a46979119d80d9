"""What learners use: samplers, which draw batches ahead of time, and views, which copy nothing."""
