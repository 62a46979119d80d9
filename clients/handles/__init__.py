"""What all handles of tables share: attaching, repeated calls after a fork, texts about waits, random numbers."""
