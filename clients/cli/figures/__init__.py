"""The figures that commands print, from a daemon or read from the segments themselves."""
