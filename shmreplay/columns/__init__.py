"""What a step is: specs of columns, nested structures of them, and how values become rows."""
