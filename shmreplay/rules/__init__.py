"""What items are made of steps: windows, patterns, priorities, targets."""
