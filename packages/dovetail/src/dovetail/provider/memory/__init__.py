"""Arenas: offsets by lifetimes, and an allocator over chunks."""
