"""The memory of engines and contexts: blobs of the plan, blocks of devices, and arenas that values are placed in."""
