"""The kernels of a host device: those of ``cpu``, or some of them, with the inputs that are read on the host."""

from __future__ import annotations

from dovetail.provider.kernels import KernelRegistry
from dovetail.provider.loader import get_provider
from dovetail.provider.schemas.shape_slots import shape_slots
from dovetail.testing.host_options import HostDeviceOptions

__all__ = ["copy_kernels"]


def copy_kernels(options: HostDeviceOptions) -> KernelRegistry:
    """A registry of the operators that the options name."""
    registry = KernelRegistry(options.name)
    for kernel in get_provider("cpu").kernels:
        if options.ops is None or kernel.op in options.ops:
            registry.register(
                kernel.op,
                since=kernel.since,
                until=kernel.until,
                domain=kernel.domain,
                types={name: sorted(names) for name, names in kernel.types.items()},
                declaration=kernel.declaration,
                host_inputs=sorted(shape_slots(kernel.op, kernel.domain)),
            )(kernel.function)
    return registry
