"""What built-in plugins compute on the host: pure functions over NumPy arrays, each with its cost."""
