"""Stands in for the package ``pycuda``."""

from __future__ import annotations

__all__ = ["VERSION"]

VERSION = (2025, 1)
