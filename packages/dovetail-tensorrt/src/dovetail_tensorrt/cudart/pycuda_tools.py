"""Stands in for ``pycuda.tools``: contexts, on which nothing depends."""

from __future__ import annotations

from typing import Any

from dovetail_tensorrt.cudart.pycuda_driver import Context, Device

__all__ = ["clear_context_caches", "get_default_device", "make_default_context", "mark_cuda_test"]


def get_default_device(default: int = 0) -> Device:
    """The host."""
    return Device(default)


def make_default_context(ctx_maker: Any = None) -> Context:
    """A context."""
    return Context()


def clear_context_caches() -> None:
    """Nothing is kept."""


def mark_cuda_test(inner: Any) -> Any:
    """The test as it is."""
    return inner
