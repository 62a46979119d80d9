"""The daemon as a process: its start, its service manager, its parent, its reload."""
