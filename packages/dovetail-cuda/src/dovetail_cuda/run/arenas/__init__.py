"""Memory of a device that is cut into chunks: the arena, guards around it, and which kind of memory an engine uses."""
