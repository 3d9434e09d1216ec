"""Back ends with memory of their own: memory, copies, streams and capture, through the provider contract."""
