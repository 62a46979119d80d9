"""Items in files and on screens."""
