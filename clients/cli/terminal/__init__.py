"""What commands share at the terminal: options, questions, plain text, progress."""
