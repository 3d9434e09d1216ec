"""What ways are made for, and with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from dovetail.provider.interfaces import Device
from dovetail_cuda.graph.plan import PartitionPlan
from dovetail_cuda.run.convolutions import BuiltConvPlan, Convolution
from dovetail_cuda.run.cublaslt import ProductLibrary

__all__ = ["FindConvPlans", "Kit", "make_kit"]

FindConvPlans = Callable[[Convolution], Sequence[BuiltConvPlan]]
_CACHE_BYTES: Final = 40 << 20
"""Weights up to this much stay in the device's cache from run to run."""
_SHARED_KIB: Final = {70: 96, 72: 96, 75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 110: 227}
"""The shared memory that one program may have, by capability."""
_LEAST_SHARED_KIB: Final = 99
"""What devices that are not in the table have at least."""


@dataclass(frozen=True, kw_only=True)
class Kit:
    """The device that code is made for, and the libraries that have ways of their own."""

    capability: int
    multiprocessors: int
    allows_tf32: bool
    weights: frozenset[str]
    """The buffers of a partition that are weights."""
    is_cold: bool
    """Whether the weights of the partition are more than the device's cache holds."""
    open_products: Callable[[], ProductLibrary]
    find_conv_plans: FindConvPlans = lambda conv: ()
    """The plans that a library has for a convolution."""
    is_generic: bool = False
    """Whether sizes vary: then nothing is timed, and libraries, which are asked shape by shape, are left out."""
    searches_convolutions: bool = True
    """Whether all tiles of a convolution are timed, or the most promising one is taken."""
    allows_one_kernel: bool = True
    """Whether attention may be one kernel."""
    allows_steps: bool = True
    """Whether attention may be a product, a softmax and a product."""

    @property
    def shared_bytes(self) -> int:
        """The shared memory that one program may have."""
        return _SHARED_KIB.get(self.capability, _LEAST_SHARED_KIB) << 10

    def find_kind(self, buffer: str) -> str:
        """Whether a buffer that is read is an ``input`` or a ``weight`` of a question."""
        return "weight" if buffer in self.weights else "input"


def make_kit(
    plan: PartitionPlan,
    device: Device,
    *,
    allows_tf32: bool,
    open_products: Callable[[], ProductLibrary],
    find_conv_plans: FindConvPlans = lambda conv: (),
    searches_convolutions: bool = True,
    allows_one_kernel: bool = True,
    allows_steps: bool = True,
) -> Kit:
    """What the ways of a partition are made with."""
    weights = {name: buffer for name, buffer in plan.buffers.items() if buffer.kind == "weight"}
    return Kit(
        capability=int(device.properties["compute_capability"].replace(".", "")),
        multiprocessors=int(device.properties["multiprocessors"]),
        allows_tf32=allows_tf32,
        weights=frozenset(weights),
        is_cold=sum(buffer.size_bytes for buffer in weights.values()) > _CACHE_BYTES,
        open_products=open_products,
        find_conv_plans=find_conv_plans,
        is_generic=plan.is_generic,
        searches_convolutions=searches_convolutions,
        allows_one_kernel=allows_one_kernel,
        allows_steps=allows_steps,
    )
