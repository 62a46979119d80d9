"""shmreplayd: the process that owns what outlives any client of shmreplay."""
