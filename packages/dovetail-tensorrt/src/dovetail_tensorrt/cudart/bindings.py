"""Stands in for the package ``cuda.bindings`` where cuda-python is not installed."""

from __future__ import annotations

from dovetail_tensorrt.cudart import driver, nvrtc, runtime

__all__ = ["driver", "nvrtc", "runtime"]

__path__: list[str] = []
"""Modules under this name are found by the import hook."""
