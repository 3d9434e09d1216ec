"""Triton sources; only what compiles imports them."""
