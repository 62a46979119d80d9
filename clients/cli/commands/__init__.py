"""The commands, one a file, and the catalogue of them."""
