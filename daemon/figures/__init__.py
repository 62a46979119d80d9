"""What the daemon tells about itself: metrics, the log of long waits, the status line."""
