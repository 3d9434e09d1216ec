"""What a back end signs: a factory that lists devices and makes providers, and a provider that takes and runs steps.

A provider derives from ``Provider``; what is marked abstract it must have, everything else has a default that is safe,
so that a provider written for fewer callbacks goes on working. Building and running use the same object. For each node
or group of nodes it takes, it says what they become: single kernels (``build_kernel``, ``load_kernel``) or a compiled
partition (``build_partition``, ``load_partition``). The plan stores what building gives, and loading gets it back.

The classes it meets are in rooms of their own, and all of them can be imported from here: ``claims`` (what it is asked
and answers), ``building`` (what it builds with), ``built`` (what it gives to the plan), ``stored`` (what it gets back),
``loaded`` (what runs), ``devices`` (memory, streams, events, captured graphs) and ``tensors``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from dovetail.allocators import HostAllocator, IGpuAllocator
from dovetail.errors import ProviderError
from dovetail.host_arrays import array_at
from dovetail.provider.contract.building import (
    BuildContext,
    Candidate,
    Chosen,
    KernelRequest,
    RewriteContext,
    TuneContext,
    Tuner,
)
from dovetail.provider.contract.built import (
    BuildReport,
    BuiltKernel,
    BuiltPartition,
    CarriedCandidates,
    NodeReport,
    PackedWeight,
    TunedPartition,
)
from dovetail.provider.contract.claims import Claim, NodeView, StepKind, claim_by_registry
from dovetail.provider.contract.loaded import (
    BindContext,
    BoundPartition,
    CompiledKernel,
    DeviceKernel,
    LaunchShape,
    LoadedPartition,
)
from dovetail.provider.contract.stored import StoredCandidates, StoredKernel, StoredPartition
from dovetail.provider.devices import (
    HOST_MEMORY,
    CapturedGraph,
    Device,
    DeviceArray,
    Event,
    MemoryAccess,
    MemoryInfo,
    ProfileEvent,
    Stream,
)
from dovetail.provider.kernels import Kernel, KernelRegistry
from dovetail.tensors import ShapeRange, TensorSpec

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = [
    "API_VERSION",
    "HOST_MEMORY",
    "BindContext",
    "BoundPartition",
    "BuildContext",
    "BuildReport",
    "BuiltKernel",
    "BuiltPartition",
    "Candidate",
    "CapturedGraph",
    "CarriedCandidates",
    "Chosen",
    "Claim",
    "CompiledKernel",
    "Device",
    "DeviceArray",
    "DeviceKernel",
    "Event",
    "Kernel",
    "KernelRegistry",
    "KernelRequest",
    "LaunchShape",
    "LoadedPartition",
    "MemoryAccess",
    "MemoryInfo",
    "NodeReport",
    "NodeView",
    "OptionSpec",
    "OptionsFactory",
    "PackedWeight",
    "ProfileEvent",
    "Provider",
    "ProviderFactory",
    "RefitMode",
    "RewriteContext",
    "ShapeRange",
    "StepKind",
    "StoredCandidates",
    "StoredKernel",
    "StoredPartition",
    "Stream",
    "TargetFactory",
    "TensorSpec",
    "TuneContext",
    "TunedPartition",
    "Tuner",
    "claim_by_registry",
]

API_VERSION: Final = 1
"""The version of this contract, which is frozen: only what has a default is added to it."""


class RefitMode:
    """How a provider takes new weights: written where the old ones are, or by making its partition again."""

    IN_PLACE: Final = "in_place"
    RECREATE: Final = "recreate"


@dataclass(frozen=True, kw_only=True)
class OptionSpec:
    """One option of a provider."""

    help: str
    default: str = ""
    choices: tuple[str, ...] = ()


class Provider(ABC):
    """A back end on one device."""

    name: str
    """The name plans store. Required."""
    device: Device
    """What it runs on. Required."""
    refit_mode: str = RefitMode.IN_PLACE
    step_kind: str = StepKind.NODE
    """What nodes become whose claim says nothing else."""
    builds_per_profile: bool = False
    """Whether partitions are compiled for each profile, because payloads depend on its shapes."""
    memory: MemoryInfo = HOST_MEMORY
    """Where its steps read and write; values that others make elsewhere are copied."""
    preferred_layout: str = "NCHW"
    """``"NHWC"`` asks for nodes of ``com.ms.internal.nhwc``, for those ops that ``kernels`` has there."""
    fuses: bool = True
    """Whether it wants the fused ops that ``kernels`` has; a provider with patterns of its own does better without."""
    is_here: bool = True
    """Whether its device is in this machine. One for a target that is not here builds plans, with nothing timed, and
    runs none."""
    follows_shapes: bool = False
    """Whether its partitions work out the shapes that nodes in them compute; else such nodes stay on the host where
    the provider has memory of its own."""
    can_capture: bool = False
    """Whether ``begin_capture`` and ``end_capture`` work, so that a run can be replayed."""
    num_runs_before_capture: int = 1
    """How many ordinary runs over the same places come before the one that is captured; at least 1."""
    can_launch: bool = False
    """Whether ``load_device_kernel`` works, so that kernels which plugins bring can run."""
    budget_bytes: int | None = None
    """How much memory its partitions may need in all, by their claims."""
    option_warnings: Sequence[str] = ()
    """What is to be told of the options it was made with, which are used all the same: values that cannot be read, for
    which the defaults stand, and options without an effect. Every build and every engine tells it to its logger."""

    # what it takes

    @property
    @abstractmethod
    def kernels(self) -> KernelRegistry:
        """The ops it has. Required."""

    def get_capability(self, nodes: Sequence[NodeView]) -> Sequence[Claim]:
        """A claim for each node, in order; by default what the registry has, attributes included."""
        return [claim_by_registry(self.kernels, node) for node in nodes]

    def host_inputs(self, op: str, domain: str, opset: int) -> frozenset[int]:
        """The positions of a node's inputs that its step reads on the host: shapes, axes, counts.

        The step gets NumPy arrays there and is done with them when it returns. By default what the registry says.
        """
        kernel = self.kernels.find(op, domain, opset)
        return frozenset() if kernel is None else kernel.host_inputs

    # steps

    def build_kernel(self, request: KernelRequest, context: BuildContext) -> BuiltKernel:
        """Compile a node that is a step of its own; by default nothing is stored but the node itself."""
        return BuiltKernel()

    def load_kernel(self, stored: StoredKernel) -> CompiledKernel:
        """Make such a node ready; attributes are bound now, not in the run.

        The caller silences floating-point warnings around runs of such steps.
        """
        raise ProviderError("it takes no single nodes", where=f"provider '{self.name}'")

    def load_device_kernel(self, code: bytes, name: str) -> DeviceKernel:
        """Load the kernel of that name from code that a plugin brought, for providers that ``can_launch``."""
        raise ProviderError("it launches no kernels of plugins", where=f"provider '{self.name}'", got=name)

    def build_partition(self, model: ir.Model, context: BuildContext) -> BuiltPartition:
        """Compile a partition: a model whose inputs and outputs are its border, weights as initializers."""
        raise ProviderError("it takes no partitions", where=f"provider '{self.name}'")

    def load_partition(self, stored: StoredPartition) -> LoadedPartition:
        """Make a compiled partition ready."""
        raise ProviderError("it takes no partitions", where=f"provider '{self.name}'")

    def tune_partition(self, stored: StoredPartition, context: TuneContext) -> TunedPartition:
        """Choose between the candidates that a plan carries for a partition, by the tuner of the context.

        It is called on a machine with the device and perhaps without what builds partitions.
        """
        raise ProviderError("it carries no candidates", where=f"provider '{self.name}'")

    def pack_weight(self, recipe: str, sources: Mapping[str, Any]) -> Any:
        """Pack a weight again after one that it is made of was replaced; see ``PackedWeight``."""
        raise ProviderError(f"it has no recipe {recipe!a}", where=f"provider '{self.name}'")

    def rewrite(self, model: ir.Model, context: RewriteContext) -> Sequence[str]:
        """Change the nodes that it was given, in place, and tell each change in a line; by default nothing.

        It is called after the fusions of Dovetail, and the provider is asked again for what comes out.
        """
        return ()

    def can_reformat(self, source: TensorSpec, target: TensorSpec) -> bool:
        """Whether ``load_reformat`` has a kernel for two layouts of its memory; else the host does it."""
        return False

    def load_reformat(self, source: TensorSpec, target: TensorSpec) -> CompiledKernel:
        """A kernel that changes type and format of one tensor, in this memory."""
        raise ProviderError("it changes no formats", where=f"provider '{self.name}'")

    # memory

    @property
    def id(self) -> str:
        """How plans call it: its name, and the ordinal of its device where that is not the first."""
        return f"{self.name}:{self.device.ordinal}" if self.device.ordinal else self.name

    @property
    def memory_name(self) -> str:
        """How plans call its memory: empty for the host's, else its own ``id``."""
        return "" if self.memory.is_host else self.id

    @property
    def dlpack_device(self) -> tuple[int, int] | None:
        """The type and number under which arrays of its memory are exchanged by DLPack; None where they are not."""
        return None

    @property
    def allocator(self) -> IGpuAllocator:
        """Where memory of this back end comes from."""
        return HostAllocator()

    @property
    def pinned_allocator(self) -> IGpuAllocator:
        """Where memory of the host comes from that this back end copies from and to best; by default any will do."""
        return HostAllocator()

    @property
    def free_bytes(self) -> int | None:
        """How much memory its device has left, None where that is not known; by default all that it has."""
        return self.device.memory_bytes

    def shrink_memory(self) -> int:
        """Give back to the device what the allocators keep and nothing uses; how many bytes, as far as that is known.

        Allocators that keep nothing, as the default ones, have nothing to give back.
        """
        return 0

    def array_at(self, address: int, shape: Sequence[int], dtype: Any) -> Any:
        """A view of this back end's memory as its steps take it; by default a NumPy array."""
        return array_at(address, shape, dtype)

    def find_access(self, address: int) -> MemoryAccess | None:
        """Return which processors can use the memory at an address; None if the back end cannot tell.

        The runtime calls it for addresses that callers bind, so that an address of the wrong kind of memory raises an
        error before a step or the host uses it.
        """
        return None

    def import_array(self, value: Any) -> Any | None:
        """A caller's array as its steps take it, without a copy; None when it does not lie in this memory.

        What it gives, and what ``array_at`` gives, is a ``DeviceArray`` where the memory is not the host's.
        """
        return None

    def can_copy(self, source: MemoryInfo, target: MemoryInfo) -> bool:
        """Whether ``copy`` goes from one memory to the other."""
        return source.is_host and target.is_host

    def copy(self, source: Any, target: Any, stream: Stream | None) -> None:
        """Copy an array to one of the same shape and type, in the order of the stream.

        Four-bit elements lie two to a byte in memory of a device, the first in the low half, and one to a byte in
        arrays of the host: copies between the two pack and unpack them.
        """
        target[...] = source

    # order

    def create_stream(self) -> Stream | None:
        """A queue of its own for a context; None when steps end before they return."""
        return None

    def wrap_stream(self, handle: int) -> Stream:
        """A queue that the caller made, by its handle; closing it leaves the caller's queue as it is."""
        raise ProviderError("it takes no streams of callers", where=f"provider '{self.name}'", got=handle)

    def synchronize(self) -> None:
        """Wait until everything the device was given is done."""
        return

    # capture

    def begin_capture(self, stream: Stream) -> None:
        """Record what is put on the stream instead of doing it."""
        raise ProviderError("it captures no graphs", where=f"provider '{self.name}'")

    def end_capture(self, stream: Stream) -> CapturedGraph:
        """End the recording and give what replays it."""
        raise ProviderError("it captures no graphs", where=f"provider '{self.name}'")

    # profiling

    def start_profiling(self) -> None:
        """Begin to note what the device does."""
        return

    def stop_profiling(self) -> Sequence[ProfileEvent]:
        """What the device did since."""
        return ()


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


@runtime_checkable
class OptionsFactory(ProviderFactory, Protocol):
    """A factory that lists the options of its providers."""

    @property
    def options(self) -> Mapping[str, OptionSpec]:
        """Every option by name."""
        ...


@runtime_checkable
class TargetFactory(ProviderFactory, Protocol):
    """A factory that also makes providers for devices that are not here, asked for by the option ``target``."""

    @property
    def default_target(self) -> str:
        """The device that is meant where only what the provider covers is asked for, and none is here."""
        ...

    def find_target(self, text: str) -> Device:
        """A device by what a user calls it, such as an architecture; its provider gets the option too.

        Raises:
            ProviderError: It knows no such device.
        """
        ...
