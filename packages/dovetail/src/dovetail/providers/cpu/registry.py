"""The kernel registry of the embedded back end; every kernel module registers itself here when it is imported."""

from __future__ import annotations

from dovetail.provider.kernels import KernelRegistry
from dovetail.provider.schemas.families import KernelFamilies
from dovetail.providers.cpu._kernel_index import KERNEL_INDEX

__all__ = ["families", "kernel", "registry"]

families = KernelFamilies("dovetail.providers.cpu.kernels", KERNEL_INDEX)
registry = KernelRegistry("cpu", families)
kernel = registry.register
