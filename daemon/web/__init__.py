"""The web page: `shmreplayd --web`."""
