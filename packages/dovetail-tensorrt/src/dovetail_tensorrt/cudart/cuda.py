"""Stands in for the package ``cuda`` where cuda-python is not installed."""

from __future__ import annotations

from dovetail_tensorrt.cudart import bindings, driver, nvrtc, runtime

__all__ = ["bindings", "cuda", "cudart", "nvrtc"]

__path__: list[str] = []
"""Modules under this name are found by the import hook."""

cuda = driver
cudart = runtime
