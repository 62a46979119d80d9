"""The event loop's helpers: threads for blocking work, bounded waits, lock files."""
