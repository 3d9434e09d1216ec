"""What a back end signs: a factory that lists devices and makes providers, and a provider that runs steps.

The contract's version is 0: it may still change. A provider says what it can take from its kernel registry, may
compile whole groups of nodes, gives memory, and turns a step of a plan into something to call. Building and running
use the same object; only ``get_capability`` and ``compile`` see the network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

from dovetail.allocators import IGpuAllocator
from dovetail.provider.kernels import KernelRegistry

__all__ = ["API_VERSION", "Claim", "Device", "NodeView", "Provider", "ProviderFactory", "RefitMode", "StepFunction"]

API_VERSION: Final = 0
"""The version of this contract; 0 means no promise yet."""

StepFunction = Callable[..., Any]
"""Arrays in, one array or a tuple of arrays out."""


@dataclass(frozen=True, kw_only=True)
class Device:
    """Something a provider can run on."""

    name: str
    kind: str
    """"cpu", "gpu" or "npu"."""
    fingerprint: str
    """Equal on two machines exactly when a tuned plan of one is optimal on the other."""
    ordinal: int = 0


class NodeView(Protocol):
    """What a provider may see of a node when it says what it takes."""

    @property
    def name(self) -> str:
        """The layer it belongs to."""
        ...

    @property
    def op(self) -> str:
        """The operator."""
        ...

    @property
    def domain(self) -> str:
        """Its domain; empty for ONNX."""
        ...

    @property
    def opset(self) -> int:
        """The opset version it is of."""
        ...

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Attributes by name."""
        ...

    @property
    def input_types(self) -> Sequence[str | None]:
        """NumPy names of input types; None for an absent input."""
        ...

    @property
    def output_types(self) -> Sequence[str | None]:
        """NumPy names of output types."""
        ...


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The provider's answer for one node: taken, or not and why."""

    taken: bool
    reason: str | None = None


class RefitMode:
    """How a provider takes new weights: written where the old ones are, or by making its partition again."""

    IN_PLACE: Final = "in_place"
    RECREATE: Final = "recreate"


@runtime_checkable
class Provider(Protocol):
    """A back end on one device."""

    @property
    def name(self) -> str:
        """The name plans store."""
        ...

    @property
    def device(self) -> Device:
        """What it runs on."""
        ...

    @property
    def kernels(self) -> KernelRegistry:
        """The ops it has."""
        ...

    @property
    def allocator(self) -> IGpuAllocator:
        """Where memory of this back end comes from."""
        ...

    @property
    def refit_mode(self) -> str:
        """One of ``RefitMode``."""
        ...

    def get_capability(self, nodes: Sequence[NodeView]) -> Sequence[Claim]:
        """A claim for each node, in order."""
        ...

    def compile(
        self,
        op: str,
        domain: str,
        opset: int,
        attributes: Mapping[str, Any],
        input_types: Sequence[str | None],
        num_outputs: int,
    ) -> StepFunction:
        """Something to call for one step; attributes are bound now, not in the run.

        The caller silences floating-point warnings around runs of such steps.
        """
        ...


@runtime_checkable
class ProviderFactory(Protocol):
    """The entry point of a back end."""

    @property
    def name(self) -> str:
        """The provider's name."""
        ...

    @property
    def version(self) -> str:
        """The version of the package."""
        ...

    @property
    def api_version(self) -> int:
        """The ``API_VERSION`` it was written for."""
        ...

    def devices(self) -> Sequence[Device]:
        """What is here now."""
        ...

    def create(self, device: Device, options: Mapping[str, str]) -> Provider:
        """A provider on one of the devices."""
        ...
