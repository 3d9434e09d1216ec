"""Device memory: pools, blocks, the arena that divides them into chunks, guards, and the choice for an engine."""
