"""A program bound to shapes: its values, its steps, its memory, and the run over callers' inputs and outputs."""
