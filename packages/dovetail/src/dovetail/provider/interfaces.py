"""What a back end signs: a factory that lists devices and makes providers, and a provider that takes and runs steps.

The contract's version is 0: it may still change. A provider derives from ``Provider``; what is marked abstract it must
have, everything else has a default that is safe, so that a provider written for fewer callbacks goes on working.
Building and running use the same object. A provider takes single nodes, which ``compile`` turns into functions, or
whole partitions, which ``build_partition`` turns into what a plan stores and ``load_partition`` into something to call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from dovetail.allocators import HostAllocator, IGpuAllocator
from dovetail.errors import ProviderError
from dovetail.host_arrays import array_at
from dovetail.provider.devices import HOST_MEMORY, CapturedGraph, Device, MemoryInfo, ProfileEvent, Stream
from dovetail.provider.kernels import KernelRegistry

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = [
    "API_VERSION",
    "BorderValue",
    "BoundPartition",
    "BuiltPartition",
    "Claim",
    "CompiledKernel",
    "Device",
    "LoadedPartition",
    "NodeView",
    "OptionSpec",
    "Provider",
    "ProviderFactory",
    "RefitMode",
    "StepKind",
    "StoredPartition",
    "claim_by_registry",
]

API_VERSION: Final = 0
"""The version of this contract; 0 means no promise yet."""


class CompiledKernel:
    """One node made ready to run: what ``Provider.compile`` gives.

    Args:
        compute: Arrays in, one array or a tuple of arrays out.
        write: The same with the output arrays as further arguments, which it writes; what it returns is not looked at.
            It is called for inputs of shapes and types that ``compute`` gave a result of the outputs' shapes and types
            for, so it checks nothing. On a device it is called from the first run on.
    """

    __slots__ = ("compute", "write")

    def __init__(self, compute: Callable[..., Any], write: Callable[..., Any] | None = None) -> None:
        self.compute = compute
        self.write = write

    def __call__(self, *arrays: Any) -> Any:
        """Run once, for callers that have no memory for results."""
        return self.compute(*arrays)

    def bind(self, stream: Stream | None) -> CompiledKernel:
        """The kernel for one context, whose work goes on this stream; by default the kernel itself."""
        return self


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
        """Attributes by name; graphs are not among them."""
        ...

    @property
    def input_types(self) -> Sequence[str | None]:
        """NumPy names of input types, or ONNX type strings such as ``seq(tensor(float))``; None for an absent one."""
        ...

    @property
    def output_types(self) -> Sequence[str | None]:
        """The same for outputs."""
        ...

    @property
    def input_shapes(self) -> Sequence[Sequence[int | str] | None]:
        """For each input its dims, numbers or texts that are equal where the dims are; None where unknown."""
        ...

    @property
    def types(self) -> Mapping[str, str]:
        """The types of inputs and outputs by the constraint of the schema they are under."""
        ...

    @property
    def constants(self) -> frozenset[int]:
        """The positions of inputs that are weights."""
        ...

    @property
    def bodies(self) -> Sequence[Sequence[NodeView]]:
        """The nodes of each body of control flow."""
        ...

    @property
    def is_assigned(self) -> bool:
        """Whether an earlier round gave the node to the provider that is asked; it should take it again."""
        ...


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The provider's answer for one node: taken, or not and why."""

    taken: bool
    reason: str | None = None
    group: str | None = None
    """Taken nodes of one group stay together: the provider gets all of them in one partition, or none."""
    cost_bytes: int = 0
    """Device memory that the node needs, weights included, against the provider's budget."""


class RefitMode:
    """How a provider takes new weights: written where the old ones are, or by making its partition again."""

    IN_PLACE: Final = "in_place"
    RECREATE: Final = "recreate"


class StepKind:
    """What a provider makes of the nodes it takes."""

    NODE: Final = "node"
    """One step a node, through ``compile``."""
    PARTITION: Final = "partition"
    """One step a partition, through ``build_partition`` and ``load_partition``."""


@dataclass(frozen=True, kw_only=True)
class BuiltPartition:
    """What a plan stores of a compiled partition; the plan adds its weights, once for all partitions."""

    payload: bytes
    """What ``load_partition`` gets back; never code of the host."""
    weights: Mapping[str, Any] = field(default_factory=dict)
    """Arrays that the payload names and does not hold."""
    version: str = ""
    """What made the payload; a provider that is asked to load another version's says what to do."""


@dataclass(frozen=True, kw_only=True)
class BorderValue:
    """What a plan says of a value that goes into a compiled partition or comes out of it."""

    type: str
    """The ONNX spelling, such as ``tensor(float)``."""
    dims: tuple[int | None, ...] | None = None
    """Sizes, None for those that are not fixed; None when nothing is said of the shape."""


@dataclass(frozen=True, kw_only=True)
class StoredPartition:
    """A compiled partition as a plan gives it back."""

    name: str
    payload: memoryview
    version: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    weights: Mapping[str, Any]
    """Arrays, mapped and read-only where the plan is a file."""
    places: Mapping[str, int]
    """Where each weight lies in ``path``; empty when there is no file."""
    path: str | None = None
    is_whole: bool = False
    """Whether it is the only step of its program, so that nothing else waits for the cores while it does not run."""
    input_values: Sequence[BorderValue] = ()
    """What the step will bring, in the order of ``inputs``: a payload from outside may want something else."""
    output_values: Sequence[BorderValue] = ()


class BoundPartition(ABC):
    """A compiled partition over the shapes of one bound run of one context."""

    @abstractmethod
    def run(self, inputs: Sequence[Any], outputs: list[Any]) -> None:
        """Run once.

        An output that is an array is written; one that is None is replaced by a new array, which belongs to the
        caller. Arrays of callers must not be kept alive after the run.
        """


class LoadedPartition(ABC):
    """A compiled partition of one engine; every bound run of a context binds it for itself."""

    note: str | None = None
    """What whoever loads the plan should know."""

    @abstractmethod
    def bind(self, stream: Stream | None) -> BoundPartition:
        """The partition for one bound run, whose work goes on this stream."""

    def close(self) -> None:
        """Let go of everything."""
        return


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
    memory: MemoryInfo = HOST_MEMORY
    """Where its steps read and write; values that others make elsewhere are copied."""
    preferred_layout: str = "NCHW"
    """``"NHWC"`` asks for nodes of ``com.ms.internal.nhwc``, for those ops that ``kernels`` has there."""
    fuses: bool = True
    """Whether it wants the fused ops that ``kernels`` has; a provider with patterns of its own does better without."""
    can_capture: bool = False
    """Whether ``begin_capture`` and ``end_capture`` work, so that a run can be replayed."""
    budget_bytes: int | None = None
    """How much memory its partitions may need in all, by their claims."""

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

    def compile(
        self,
        op: str,
        domain: str,
        opset: int,
        attributes: Mapping[str, Any],
        input_types: Sequence[str | None],
        num_outputs: int,
    ) -> CompiledKernel:
        """A kernel for one step; attributes are bound now, not in the run.

        The caller silences floating-point warnings around runs of such steps.
        """
        raise ProviderError("it takes no single nodes", where=f"provider '{self.name}'")

    def build_partition(self, model: ir.Model, *, keep: frozenset[str] = frozenset()) -> BuiltPartition:
        """Compile a partition: a model whose inputs and outputs are its border, weights as initializers.

        Weights whose names are in ``keep`` may be replaced in a loaded engine, so they stay as they are.
        """
        raise ProviderError("it takes no partitions", where=f"provider '{self.name}'")

    def load_partition(self, stored: StoredPartition) -> LoadedPartition:
        """Make a compiled partition ready."""
        raise ProviderError("it takes no partitions", where=f"provider '{self.name}'")

    # memory

    @property
    def memory_name(self) -> str:
        """How plans call its memory: empty for the host's, else the name of the provider."""
        return "" if self.memory.is_host else self.name

    @property
    def allocator(self) -> IGpuAllocator:
        """Where memory of this back end comes from."""
        return HostAllocator()

    @property
    def pinned_allocator(self) -> IGpuAllocator:
        """Where memory of the host comes from that this back end copies from and to best; by default any will do."""
        return HostAllocator()

    def array_at(self, address: int, shape: Sequence[int], dtype: Any) -> Any:
        """A view of this back end's memory as its steps take it; by default a NumPy array."""
        return array_at(address, shape, dtype)

    def import_array(self, value: Any) -> Any | None:
        """A caller's array as its steps take it, without a copy; None when it does not lie in this memory.

        What it gives, and what ``array_at`` gives, is a ``DeviceArray`` where the memory is not the host's.
        """
        return None

    def can_copy(self, source: MemoryInfo, target: MemoryInfo) -> bool:
        """Whether ``copy`` goes from one memory to the other."""
        return source.is_host and target.is_host

    def copy(self, source: Any, target: Any, stream: Stream | None) -> None:
        """Copy an array to one of the same shape and type, in the order of the stream."""
        target[...] = source

    # order

    def create_stream(self) -> Stream | None:
        """A queue of its own for a context; None when steps end before they return."""
        return None

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


def claim_by_registry(kernels: KernelRegistry, node: NodeView) -> Claim:
    """Take a node when the registry has a kernel that knows all of its attributes and types."""
    kernel = kernels.find(node.op, node.domain, node.opset)
    if kernel is None:
        return Claim(taken=False, reason=f"no kernel for {node.domain or 'ai.onnx'}::{node.op} at opset {node.opset}")
    unknown = node.attributes.keys() - kernel.attributes
    if unknown:
        return Claim(taken=False, reason=f"the kernel does not take attribute(s) {', '.join(sorted(unknown))}")
    for constraint, name in node.types.items():
        taken = kernel.types.get(constraint)
        if taken is not None and name not in taken:
            return Claim(taken=False, reason=f"the kernel takes {constraint} of {', '.join(sorted(taken))}, not {name}")
    return Claim(taken=True)


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
