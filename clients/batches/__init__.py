"""What a read returns, and the arguments that reads share."""
