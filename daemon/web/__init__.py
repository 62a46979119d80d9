"""The page to look at: `shmreplayd --web`."""
