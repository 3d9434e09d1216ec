"""How a host device is to be: what it takes, what it can do, and in which ways it breaks the contract."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dovetail.errors import ProviderError
from dovetail.provider.interfaces import API_VERSION, RefitMode

__all__ = ["HostDeviceOptions"]


@dataclass(frozen=True, kw_only=True)
class HostDeviceOptions:
    """Everything a test can choose; the device is well behaved by default."""

    name: str = "host_device"
    num_devices: int = 1
    """How many there are: ``name``, ``name:1`` and so on."""
    ops: Collection[str] | None = None
    """The operators it has a kernel for; None for all that ``cpu`` has."""
    compiles: bool = False
    """Whether it takes whole partitions instead of single nodes."""
    compiled_ops: Collection[str] = ()
    """Operators that become partitions, on a device that takes single nodes otherwise."""
    workspace_bytes: int = 0
    """Scratch memory that each kernel and partition asks for, and fills with a pattern in each run."""
    num_lanes: int = 0
    """Further streams on which partitions put their work in turn; such partitions are not captured."""
    reformats: bool = True
    """Whether it changes formats of its arrays itself."""
    layout: str = "NCHW"
    has_streams: bool = True
    can_capture: bool = True
    can_update: bool = True
    """Whether a captured graph can take over another recording."""
    peers: Collection[str] = ()
    """Other host devices whose memory it can copy from and to, by id."""
    budget_bytes: int | None = None
    cost_bytes: int = 0
    """What each of its claims costs."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """Operator -> group that stays together."""
    packs: bool = False
    """Whether it packs the weights of MatMul."""
    has_code: bool = False
    """Whether what it builds has device code, without which it does not load."""
    rewrites: bool = False
    """Whether it has a pass of its own, by which Relu becomes LeakyRelu."""
    per_profile: bool = False
    """Whether it compiles partitions for each profile, which take no other shapes then."""
    ways: Sequence[str] = ()
    """Ways between which it chooses for each partition, from the slowest to the fastest; each has device code."""
    is_here: bool = True
    """Whether it can run anything; else it builds with nothing timed."""
    num_reports: int = 0
    """How many steps of progress it reports for each thing it builds."""
    refit_mode: str = RefitMode.IN_PLACE
    memory_bytes: int | None = None
    """How much memory there is; None for as much as the process has."""
    work_s: float = 0.0
    """How many seconds more each piece of work takes."""

    # ways to misbehave
    raises_in: Collection[str] = ()
    """Callbacks that raise: their names in the contract, and those of streams, events and graphs."""
    takes_all: bool = False
    """Whether it claims nodes that it cannot compile."""
    missing_claims: int = 0
    """How many claims too few it gives."""
    fail_allocation: int = 0
    """The number of the allocation that gets no memory, from 1."""
    api_version: int = API_VERSION

    def updated(self, texts: Mapping[str, str]) -> HostDeviceOptions:
        """The same with options as a user gives them to a provider, which are texts.

        >>> HostDeviceOptions().updated({"layout": "NHWC", "budget_bytes": "100"}).budget_bytes
        100
        """
        unknown = texts.keys() - {"layout", "budget_bytes", "can_capture"}
        if unknown:
            raise ProviderError(f"unknown option(s) {', '.join(sorted(unknown))}", where=f"provider '{self.name}'")
        changed = self
        if "layout" in texts:
            changed = replace(changed, layout=texts["layout"])
        if "budget_bytes" in texts:
            changed = replace(changed, budget_bytes=int(texts["budget_bytes"]))
        if "can_capture" in texts:
            changed = replace(changed, can_capture=texts["can_capture"] == "1")
        return changed
