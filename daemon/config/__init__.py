"""What the daemon is told, by command line, environment and file."""
