"""The kernel registry of the embedded back end; every kernel module registers itself here."""

from __future__ import annotations

from dovetail.provider.kernels import KernelRegistry

__all__ = ["kernel", "registry"]

registry = KernelRegistry("cpu")
kernel = registry.register
