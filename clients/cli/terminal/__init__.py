"""What commands share at the terminal: options, printing, and the grammar of the command line."""
