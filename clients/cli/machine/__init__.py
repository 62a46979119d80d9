"""What `shmreplay doctor` finds out about the machine."""
