"""The structure of steps: specs of columns, nested structures of them, and how values become rows."""
