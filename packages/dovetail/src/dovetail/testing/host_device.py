"""A provider that behaves like a device and needs none: memory of its own, streams, events, capture, a budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from dovetail.allocators import HostAllocator
from dovetail.errors import ProviderError, ResourceError
from dovetail.finalizers import finalize
from dovetail.provider.devices import Device, MemoryAccess, MemoryInfo, ProfileEvent, Stream
from dovetail.provider.interfaces import (
    BindContext,
    BuildContext,
    BuiltKernel,
    BuiltPartition,
    Claim,
    KernelRequest,
    NodeView,
    Provider,
    RewriteContext,
    StepKind,
    StoredKernel,
    StoredPartition,
    TensorSpec,
    TuneContext,
    TunedPartition,
)
from dovetail.provider.kernels import KernelRegistry
from dovetail.provider.loader import get_provider
from dovetail.provider.memory.arena_allocator import ArenaAllocator
from dovetail.testing.host_arrays import HostDeviceAllocator, HostDeviceArray
from dovetail.testing.host_building import (
    build_kernel,
    check_code,
    pack_weight,
    report_steps,
    rewrite_relu,
    unpack_inputs,
)
from dovetail.testing.host_functions import HostDeviceFunction
from dovetail.testing.host_kernels import copy_kernels
from dovetail.testing.host_memory import DeviceAllocations
from dovetail.testing.host_options import HostDeviceOptions
from dovetail.testing.host_partitions import HostDevicePartition, compile_partition, load_partition
from dovetail.testing.host_plugin_kernels import HostDeviceKernel, PluginFunction
from dovetail.testing.host_reformats import HostDeviceReformat
from dovetail.testing.host_streams import HostGraph, HostStream, StreamSet, WrappedHostStream
from dovetail.testing.host_ways import tune_ways
from dovetail.testing.statistics import DeviceStatistics

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["HostDevice"]


_EXTENSION_DEVICE: Final = 12
"""DLPack's type for devices that it does not know."""


class HostDevice(Provider):
    """Runs the kernels of ``cpu`` over memory that the host may not read, when somebody waits for it."""

    def __init__(self, device: Device, options: HostDeviceOptions) -> None:
        self.name = options.name
        self.device = device
        self.options = options
        self.memory = MemoryInfo(name=options.name, ordinal=device.ordinal)
        self.preferred_layout = options.layout
        self.can_capture = options.can_capture and options.has_streams
        self.can_launch = options.has_streams
        self.budget_bytes = options.budget_bytes
        self.builds_per_profile = options.per_profile
        self.is_here = options.is_here
        self.refit_mode = options.refit_mode
        self.step_kind = StepKind.PARTITION if options.compiles else StepKind.NODE
        self.statistics = DeviceStatistics()
        """What the device was told to do."""
        self.graphs: list[HostGraph] = []
        """Everything that was captured."""
        self.plugin_functions: dict[str, PluginFunction] = {}
        """What the kernels of plugins do here, by their names."""
        self._streams = StreamSet(f"provider '{self.id}'", self.statistics, self.check)
        self._live = DeviceAllocations(f"provider '{self.id}'")
        self._allocator = HostDeviceAllocator(
            limit_bytes=options.memory_bytes,
            fail_at=options.fail_allocation,
            before=self.check,
            memory=self._live,
            find_stream=self.find_stream,
        )
        self._pinned_allocator = ArenaAllocator(HostAllocator(), chunk_bytes=2**16)
        self._kernels = copy_kernels(options)

    def check(self, callback: str) -> None:
        """Raise when the callback was told to."""
        if callback in self.options.raises_in:
            raise RuntimeError(f"told to fail in {callback}")

    # what it takes

    @property
    def kernels(self) -> KernelRegistry:
        """Those of ``cpu``, or some of them."""
        return self._kernels

    def get_capability(self, nodes: Sequence[NodeView]) -> Sequence[Claim]:
        """What the registry has, with costs and groups; tensors only."""
        self.check("get_capability")
        claims = [self._refine(node, claim) for node, claim in zip(nodes, super().get_capability(nodes), strict=True)]
        return claims[: len(claims) - self.options.missing_claims]

    def _refine(self, node: NodeView, claim: Claim) -> Claim:
        if not (claim.taken or self.options.takes_all):
            return claim
        types = [name for name in (*node.input_types, *node.output_types) if name is not None]
        if any("(" in name or name in ("object", "string") for name in types):
            return Claim(taken=False, reason="it holds tensors of numbers only")
        return Claim(
            taken=True,
            group=self.options.groups.get(node.op),
            step_kind=StepKind.PARTITION if node.op in self.options.compiled_ops else None,
            cost_bytes=self.options.cost_bytes,
        )

    def host_inputs(self, op: str, domain: str, opset: int) -> frozenset[int]:
        """Shapes, axes and counts."""
        self.check("host_inputs")
        return super().host_inputs(op, domain, opset)

    def build_kernel(self, request: KernelRequest, context: BuildContext) -> BuiltKernel:
        """Packed weights, device code and a workspace, as the options say."""
        self.check("build_kernel")
        return build_kernel(self, request, context)

    def load_kernel(self, stored: StoredKernel) -> HostDeviceFunction:
        """The kernel of ``cpu`` over this device's memory."""
        self.check("load_kernel")
        op, domain, opset = stored.op, stored.domain, stored.opset
        if self._kernels.find(op, domain, opset) is None:
            raise ProviderError(f"no kernel for {domain or 'ai.onnx'}::{op}", where=f"provider '{self.id}'")
        if stored.name:  # else it comes from no plan
            check_code(self, stored.name, stored.code)
        function = unpack_inputs(self, stored, get_provider("cpu").load_kernel(stored))
        return HostDeviceFunction(self, op, function, super().host_inputs(op, domain, opset), stored.num_outputs)

    def load_device_kernel(self, code: bytes, name: str) -> HostDeviceKernel:
        """The function that a test gave for a kernel of that name."""
        return HostDeviceKernel(self, name)

    def build_partition(self, model: ir.Model, context: BuildContext) -> BuiltPartition:
        """A plan for ``cpu``."""
        self.check("build_partition")
        report_steps(self, context)
        return compile_partition(self, model, context)

    def load_partition(self, stored: StoredPartition) -> HostDevicePartition:
        """That plan, over this device's memory."""
        self.check("load_partition")
        return load_partition(self, stored)

    def tune_partition(self, stored: StoredPartition, context: TuneContext) -> TunedPartition:
        """Choose between the ways that a plan carries."""
        self.check("tune_partition")
        return tune_ways(self, stored, context)

    def can_reformat(self, source: TensorSpec, target: TensorSpec) -> bool:
        """Every change that the host can do, unless the options say otherwise."""
        self.check("can_reformat")
        return self.options.reformats

    def load_reformat(self, source: TensorSpec, target: TensorSpec) -> HostDeviceReformat:
        """What changes formats of arrays here."""
        self.check("load_reformat")
        return HostDeviceReformat(self, source, target)

    def pack_weight(self, recipe: str, sources: Mapping[str, Any]) -> npt.NDArray[Any]:
        """Transpose a weight again."""
        self.check("pack_weight")
        return pack_weight(self, recipe, sources)

    def rewrite(self, model: ir.Model, context: RewriteContext) -> Sequence[str]:
        """Its own pass, where the options want one."""
        self.check("rewrite")
        return rewrite_relu(model, context) if self.options.rewrites else ()

    # memory

    @property
    def dlpack_device(self) -> tuple[int, int]:
        """An extension device, so that NumPy and everybody else who does not know it refuses its arrays."""
        self.check("dlpack_device")
        return _EXTENSION_DEVICE, self.device.ordinal

    @property
    def free_bytes(self) -> int | None:
        """All that it has: its memory is the host's."""
        return super().free_bytes

    def shrink_memory(self) -> int:
        """Nothing: its allocator keeps nothing that nobody uses."""
        return super().shrink_memory()

    @property
    def allocator(self) -> HostDeviceAllocator:
        """Its private memory, with statistics and ``shrink``."""
        return self._allocator

    @property
    def pinned_allocator(self) -> ArenaAllocator:
        """Memory of the host, with statistics."""
        self.check("pinned_allocator")
        return self._pinned_allocator

    def array_at(self, address: int, shape: Sequence[int], dtype: Any) -> HostDeviceArray:
        """A view of its memory that NumPy refuses."""
        self.check("array_at")
        return self.view_at(address, shape, dtype)

    def view_at(self, address: int, shape: Sequence[int], dtype: npt.DTypeLike, *, user: str = "it") -> HostDeviceArray:
        """What lies at an address, for plugins: ``read`` and ``view`` of it open it in work on a stream.

        Raises:
            ProviderError: The address is none of this device's live memory: one of the host, or one that was freed.
        """
        array = HostDeviceArray(address, shape, dtype, device=self.id, memory=self._live)
        array.require_live(user)
        return array

    def find_access(self, address: int) -> MemoryAccess:
        """Return DEVICE for memory of its allocator, which the host must not read, and HOST for all other memory."""
        return MemoryAccess.DEVICE if self._allocator.contains(address) else MemoryAccess.HOST

    def import_array(self, value: Any) -> HostDeviceArray | None:
        """Its own arrays."""
        self.check("import_array")
        return value if isinstance(value, HostDeviceArray) and value.device == self.id else None

    def can_copy(self, source: MemoryInfo, target: MemoryInfo) -> bool:
        """To and from the host and peers, and inside."""
        self.check("can_copy")
        others = [info for info in (source, target) if info != self.memory]
        return len(others) < 2 and all(info.is_host or _id_of(info) in self.options.peers for info in others)

    def copy(self, source: Any, target: Any, stream: Stream | None) -> None:
        """Copy in the order of the stream: what the source holds then, not now."""
        self.check("copy")
        self._count_copy(source, target)
        for array in (source, target):
            if isinstance(array, HostDeviceArray):
                array.require_live("copy")
        self.submit(stream, "copy", lambda: _write(target, _read(source)))

    def _count_copy(self, source: Any, target: Any) -> None:
        is_from, is_to = isinstance(source, HostDeviceArray), isinstance(target, HostDeviceArray)
        if is_from and is_to:
            self.statistics.copies_inside += 1
        elif is_to:
            self.statistics.copies_to_device += 1
        else:
            self.statistics.copies_to_host += 1

    def require_own(self, array: Any, name: str) -> HostDeviceArray:
        """An array of this device, for a step of that name; anything else is an error."""
        if not isinstance(array, HostDeviceArray) or array.device != self.id:
            raise ProviderError(
                f"{name} got an array that does not lie in the device's memory",
                where=f"provider '{self.id}'",
                got=type(array).__name__,
            )
        array.require_live(name)
        return array

    def open_workspace(self, context: BindContext, name: str) -> HostDeviceArray | None:
        """The scratch memory that a step was bound with; None when its options ask for none."""
        needed = self.options.workspace_bytes
        if not needed:
            return None
        if context.workspace_bytes < needed:
            raise ProviderError(
                "the workspace is smaller than was asked for",
                where=f"provider '{self.id}', step '{name}'",
                expected=needed,
                got=context.workspace_bytes,
            )
        return self.view_at(context.workspace, (needed,), np.uint8, user=name)

    def empty(self, shape: Sequence[int], dtype: npt.DTypeLike) -> HostDeviceArray:
        """New memory, which lives as long as the array."""
        array = HostDeviceArray(0, shape, dtype, device=self.id, memory=self._live)
        address = self._allocator.allocate(array.nbytes, self.memory.alignment_bytes, 0)
        if not address:
            raise ResourceError("out of memory", where=f"provider '{self.id}'", got=f"{array.nbytes} bytes")
        array.address = address
        finalize(array, self._allocator.deallocate, address)
        return array

    def to_device(self, array: npt.NDArray[Any]) -> HostDeviceArray:
        """A copy of an array in this device's memory, made at once."""
        made = self.empty(array.shape, array.dtype)
        made.write(array)
        return made

    def to_host(self, array: HostDeviceArray) -> npt.NDArray[Any]:
        """A copy of an array of this device, when all its work is done."""
        self.synchronize()
        return array.read().copy()

    # order

    def create_stream(self) -> HostStream | None:
        """A queue."""
        self.check("create_stream")
        return HostStream(self._streams) if self.options.has_streams else None

    def find_stream(self, handle: int) -> HostStream:
        """The stream that a plugin got the handle of."""
        if handle not in self._streams.streams:
            raise ProviderError("no stream of this device", where=f"provider '{self.id}'", got=handle)
        return self._streams.streams[handle]

    def wrap_stream(self, handle: int) -> WrappedHostStream:
        """A stream of this device that somebody else made."""
        self.check("wrap_stream")
        return WrappedHostStream(self.find_stream(handle))

    def submit(self, stream: Stream | None, name: str, run: Callable[[], None]) -> None:
        """Put work on a stream, or do it when there is none."""
        work = run if not self.options.work_s else partial(_run_slowly, run, self.options.work_s)
        if stream is None:
            work()
        else:
            self.find_stream(stream.handle).submit(name, work)

    def synchronize(self) -> None:
        """Run everything that waits."""
        self.check("synchronize")
        self.statistics.waits += 1
        self._streams.finish()

    # capture and profiling

    def begin_capture(self, stream: Stream) -> None:
        """Record what is put on the stream."""
        self.check("begin_capture")
        self.find_stream(stream.handle).begin_recording()

    def end_capture(self, stream: Stream) -> HostGraph:
        """What was recorded."""
        work = self.find_stream(stream.handle).end_recording()
        self.check("end_capture")
        self.statistics.captures += 1
        graph = HostGraph(self._streams, work, can_update=self.options.can_update)
        self.graphs.append(graph)
        return graph

    def start_profiling(self) -> None:
        """Note the time of each piece of work."""
        self.check("start_profiling")
        self._streams.events = []

    def stop_profiling(self) -> Sequence[ProfileEvent]:
        """What ran since."""
        self.check("stop_profiling")
        events, self._streams.events = self._streams.events or [], None
        return events


def _id_of(memory: MemoryInfo) -> str:
    return f"{memory.name}:{memory.ordinal}" if memory.ordinal else memory.name


def _write(target: Any, array: npt.NDArray[Any]) -> None:
    if isinstance(target, HostDeviceArray):
        target.write(array)
    else:
        np.copyto(target, array, casting="no")


def _run_slowly(run: Callable[[], None], seconds: float) -> None:
    time.sleep(seconds)
    run()


def _read(array: Any) -> npt.NDArray[Any]:
    view: npt.NDArray[Any] = array.read() if isinstance(array, HostDeviceArray) else array
    return view
