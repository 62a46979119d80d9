"""The daemon's configuration, from command line, environment and file."""
