"""Stands in for ``pycuda.autoinit``: importing it makes a context, of which nothing depends."""

from __future__ import annotations

from dovetail_tensorrt.cudart.pycuda_driver import Context, Device

__all__ = ["context", "device"]

device = Device(0)
context = Context()
