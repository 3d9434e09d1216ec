"""Plugin libraries that plans carry: their stored form, and the import of Python sources from memory."""
