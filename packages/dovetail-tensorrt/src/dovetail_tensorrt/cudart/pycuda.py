"""Stands in for the package ``pycuda``."""

from __future__ import annotations

__all__ = ["VERSION"]

__path__: list[str] = []
"""Modules under this name are found by the import hook."""

VERSION = (2025, 1)
