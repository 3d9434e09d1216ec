"""The tensorrt-shaped module over Dovetail, and what belongs to it."""
