"""Checking in a process of its own: a child that may hang or crash, who watches it, and fresh copies of it."""
