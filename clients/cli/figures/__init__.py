"""The figures that commands print, from a daemon or from the segments themselves."""
