"""Stands in for the package ``cuda.bindings`` where cuda-python is not installed."""

from __future__ import annotations

from dovetail_tensorrt.cudart import driver, runtime

__all__ = ["driver", "runtime"]

__path__: list[str] = []
"""Modules under this name are found by the import hook."""
