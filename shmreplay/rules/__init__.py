"""How items are made from steps: windows, patterns, priorities, targets."""
