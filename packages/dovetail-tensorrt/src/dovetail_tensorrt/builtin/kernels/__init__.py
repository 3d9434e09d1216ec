"""Kernels of built-in plugins in Triton's language; imported where they are compiled, and nowhere else.

Each module is complete in itself: its text is what is compiled and what a kernel store is asked for.
"""
