"""shmreplayd: the process that owns the tables, which outlive any client."""
