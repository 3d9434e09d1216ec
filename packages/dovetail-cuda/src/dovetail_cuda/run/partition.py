"""A partition that runs: its code and weights on the device, shared by an engine, and what one bound run launches."""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import msgspec
import numpy as np

from dovetail.allocators import IGpuAllocator
from dovetail.errors import InputError, PlanCorruptError, ProviderError, ResourceError
from dovetail.provider.interfaces import BindContext, BoundPartition, LoadedPartition, StoredPartition
from dovetail_cuda.run.arenas.memory import DeviceMemory
from dovetail_cuda.run.arrays import CudaArray
from dovetail_cuda.run.gpu import Gpu
from dovetail_cuda.run.payload import BufferRecord, KernelLaunch, KernelRecord, Launches, LaunchList, ProductLaunch
from dovetail_cuda.run.profile import LaunchLabel, LaunchProfile
from dovetail_cuda.run.steps import LoadedFunction, ReadyLaunch, Resources, load_functions, prepare_launch
from dovetail_cuda.run.stream_states import StreamStates
from dovetail_cuda.run.variants import BufferTemplate, Payload, read_payload, read_symbols, resolve

__all__ = ["BoundLaunches", "CudaPartition", "LateLaunches", "Program", "Services"]

_ALIGNMENT: Final = 256
_PATIENT: Final = 1
"""The launch that never starts early. Where a plugin is in front of a partition, whose kernel lets nobody start early,
the second kernel behind it was seen to wait 16 us longer than it had to when it did."""


@dataclass(frozen=True, kw_only=True)
class Services:
    """What partitions run with."""

    gpu: Gpu
    allocator: DeviceMemory
    streams: StreamStates
    profile: LaunchProfile


@dataclass
class _Loaded:
    """What was taken from the device for an engine."""

    services: Services
    libraries: dict[str, int] = field(default_factory=dict)
    weights: dict[str, int] = field(default_factory=dict)
    block: int = 0

    def release(self) -> None:
        """Give all of it back; nothing runs that could use it."""
        driver = self.services.gpu.driver
        for library in self.libraries.values():
            driver.unload_library(library)
        if self.block:
            self.services.allocator.deallocate(self.block)


@dataclass(frozen=True, kw_only=True)
class Program:
    """Launches for one set of shapes, ready to be bound."""

    launches: LaunchList
    labels: Sequence[LaunchLabel]
    ready: Sequence[ReadyLaunch]


class CudaPartition(LoadedPartition):
    """The code and weights of one partition of an engine."""

    def __init__(self, stored: StoredPartition, services: Services) -> None:
        services.gpu.release_now()
        self.name = stored.name
        self.services = services
        self._payload: Payload = read_payload(stored)
        self._stored = _strip(stored)
        self._functions: dict[KernelRecord, LoadedFunction] = {}
        self.output_types = [np.dtype(spec.dtype) for spec in stored.output_specs]
        self._loaded = _Loaded(services)
        self._finalizer = weakref.finalize(self, services.gpu.release_later, self._loaded.release)
        self._finalizer.atexit = False  # the process ends, and its memory with it
        if _has_products(self._payload):
            services.streams.open_products_soon()
        try:
            self._upload(_find_weights(self._payload, stored))
            self._load_functions(stored.code)
            self._programs = {
                tuple(each.values): self._prepare(each.launches, stored.code) for each in self._payload.variants
            }
        except BaseException:
            self.close()
            raise

    def bind(self, context: BindContext) -> BoundPartition:
        """The launches over the workspace and stream of a context."""
        if not self._is_told(context.input_shapes):
            return LateLaunches(self, context)
        return BoundLaunches(self, self.find_program(context.input_shapes), context)

    def workspace_bytes(self, input_shapes: Sequence[tuple[int, ...] | None]) -> int:
        """What the arena and products need."""
        return self.find_program(input_shapes).launches.workspace_bytes if self._is_told(input_shapes) else 0

    def _is_told(self, input_shapes: Sequence[tuple[int, ...] | None]) -> bool:
        """Whether all shapes are there that say which launches to use; in bodies of control flow they may not be."""
        return all(input_shapes[symbol.input] is not None for symbol in self._payload.symbols)

    def find_program(self, input_shapes: Sequence[tuple[int, ...] | None]) -> Program:
        """The launches for shapes: those made for just these, or those for any."""
        where = f"step '{self.name[:200]}'"
        values = tuple(read_symbols(self._payload.symbols, input_shapes, where))
        found = self._programs.get(values)
        return self._prepare(resolve(self._payload, values, self._stored), {}) if found is None else found

    def refit(self, name: str, array: Any) -> None:
        """Write a new array where the old one is."""
        address = self._loaded.weights.get(name)
        if address is not None:
            self._copy_in(address, np.ascontiguousarray(array))

    def close(self) -> None:
        """Let go of code and weights."""
        if self._finalizer.detach() is not None:
            self.services.gpu.release_later(self._loaded.release)
            self.services.gpu.release_now()

    def find_weight(self, name: str) -> int:
        """Where a weight is."""
        return self._loaded.weights[name]

    def _upload(self, weights: dict[str, Any]) -> None:
        """Put all weights into one block."""
        total, places = 0, {}
        for name, array in weights.items():
            places[name] = total
            total += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        if not total:
            self._loaded.weights = dict.fromkeys(places, 0)
            return
        self._loaded.block = self.services.allocator.reserve(total)
        if not self._loaded.block:
            raise ResourceError("no memory for weights", where=f"step '{self.name[:200]}'", got=f"{total} bytes")
        self._loaded.weights = {name: self._loaded.block + place for name, place in places.items()}
        for name, array in weights.items():
            self._copy_in(self._loaded.weights[name], np.ascontiguousarray(array))

    def _copy_in(self, address: int, array: Any) -> None:
        driver = self.services.gpu.driver
        if array.nbytes:
            driver.copy(address, array.ctypes.data, array.nbytes, 0)
            driver.synchronize_stream(0)

    def _load_functions(self, code: Mapping[str, Any]) -> None:
        """Load the code of everything that may be launched."""
        template = self._payload.template
        lists = [*(each.launches.kernels for each in self._payload.variants), *([template.kernels] if template else [])]
        kernels = list(dict.fromkeys(kernel for each in lists for kernel in each))
        driver, libraries = self.services.gpu.driver, self._loaded.libraries
        found = load_functions(driver, kernels, code, libraries)
        self._functions = dict(zip(kernels, found, strict=True))

    def _prepare(self, launches: LaunchList, code: Mapping[str, Any]) -> Program:
        """Launches made ready as far as they are the same for all contexts."""
        resources = Resources(
            gpu=self.services.gpu,
            kernels=launches.kernels,
            functions=[self._functions[kernel] for kernel in launches.kernels],
            streams=self.services.streams,
            code=code,
        )
        patient = replace(
            resources, kernels=[msgspec.structs.replace(kernel, starts_early=False) for kernel in launches.kernels]
        )
        return Program(
            launches=launches,
            labels=[_make_label(launch, launches.kernels, self.name) for launch in launches.launches],
            ready=[
                prepare_launch(launch, patient if number == _PATIENT else resources)
                for number, launch in enumerate(launches.launches)
            ],
        )


@dataclass(frozen=True)
class _WeightSize:
    nbytes: int


def _strip(stored: StoredPartition) -> StoredPartition:
    """What launches of a template are checked against, without weights and code."""
    weights = {name: _WeightSize(array.nbytes) for name, array in stored.weights.items()}
    empty = memoryview(b"")
    return replace(stored, payload=empty, weights=weights, code=dict.fromkeys(stored.code, empty), places={})


def _find_weights(payload: Payload, stored: StoredPartition) -> dict[str, Any]:
    """The weights that any launch reads."""
    template = payload.template
    buffers: list[BufferRecord | BufferTemplate] = [b for each in payload.variants for b in each.launches.buffers]
    buffers += [] if template is None else template.buffers
    names = dict.fromkeys(buffer.name for buffer in buffers if buffer.kind == "weight")
    missing = [name for name in names if name not in stored.weights]
    if missing:
        raise PlanCorruptError(
            "a partition reads a weight that the plan does not have", where=f"step {stored.name[:200]!a}"
        )
    return {name: stored.weights[name] for name in names}


def _has_products(payload: Payload) -> bool:
    """Whether a library multiplies for it."""
    launches = [launch for variant in payload.variants for launch in variant.launches.launches]
    return any(isinstance(launch, ProductLaunch) for launch in launches)


def _make_label(launch: Launches, kernels: Sequence[KernelRecord], step: str) -> LaunchLabel:
    """What a profile calls a launch: its layers, and the kernel or the kind of launch."""
    name = kernels[launch.kernel].name if isinstance(launch, KernelLaunch) else str(type(launch).__struct_config__.tag)
    return LaunchLabel(kernel=name, step=step, layers=launch.layers)


class BoundLaunches(BoundPartition):
    """The launches of a partition over one context's stream and workspace."""

    is_capturable = True

    def __init__(self, partition: CudaPartition, program: Program, context: BindContext) -> None:
        launches = program.launches
        if context.workspace_bytes < launches.workspace_bytes:
            raise ProviderError(
                "the workspace is too small",
                where=f"step '{partition.name[:200]}'",
                expected=f"{launches.workspace_bytes} bytes",
                got=context.workspace_bytes,
            )
        self._partition, self._program, self._context = partition, program, context
        self._zeroed = _ZeroedMemory(partition.services)
        self._addresses = [self._find_address(buffer) for buffer in launches.buffers]
        self._border = [(n, b) for n, b in enumerate(launches.buffers) if b.kind in ("input", "output")]
        scratch = context.workspace + launches.arena_bytes
        self._steps = [launch.bind(self._addresses, scratch, self._stream) for launch in program.ready]

    def _find_address(self, buffer: BufferRecord) -> int:
        if buffer.kind == "arena":
            return self._context.workspace + buffer.offset
        if buffer.kind == "zeroed":
            return self._zeroed.take(buffer.size_bytes)
        return self._partition.find_weight(buffer.name) if buffer.kind == "weight" else 0

    def run(self, inputs: Sequence[Any], outputs: list[Any]) -> None:
        """Put every launch on the stream of the context."""
        _ = self._partition.services.gpu.driver  # its context is current from here on
        self._fill_outputs(outputs)
        for number, buffer in self._border:
            array = (inputs if buffer.kind == "input" else outputs)[buffer.number]
            if array.nbytes != buffer.size_bytes:
                raise InputError(
                    f"an {buffer.kind} has another size than the partition was built for",
                    where=f"step '{self._partition.name[:200]}'",
                    expected=f"{buffer.size_bytes} bytes",
                    got=f"{array.nbytes} bytes, shape {array.shape}",
                )
            self._addresses[number] = array.address
        self._partition.services.profile.run(self._steps, self._program.labels, self._stream)

    @property
    def _stream(self) -> int:
        """The stream that the context has now, which a caller may change between runs."""
        return 0 if self._context.stream is None else self._context.stream.handle

    def _fill_outputs(self, outputs: list[Any]) -> None:
        """Make an array for each output that nobody gave memory for."""
        for number, shape in enumerate(self._program.launches.output_shapes):
            if outputs[number] is None:
                outputs[number] = self._make_array(shape, self._partition.output_types[number])

    def _make_array(self, shape: Sequence[int], dtype: np.dtype[Any]) -> CudaArray:
        memory, size = self._partition.services.allocator, math.prod(shape) * dtype.itemsize
        address = memory.allocate(size, _ALIGNMENT, 0)
        if not address:
            raise ResourceError("no memory for a result", where=f"step '{self._partition.name[:200]}'", got=size)
        return CudaArray(address, shape, dtype, owner=_Owner(self._partition.services.gpu, memory, address))


class LateLaunches(BoundPartition):
    """A partition whose shapes only its runs tell: launches are chosen, and memory is taken, when they are seen."""

    def __init__(self, partition: CudaPartition, context: BindContext) -> None:
        self._partition, self._context = partition, context
        self._shapes: list[tuple[int, ...]] = []
        self._bound: BoundLaunches | None = None
        self._memory: _Owner | None = None

    def run(self, inputs: Sequence[Any], outputs: list[Any]) -> None:
        """Put every launch for these shapes on the stream of the context."""
        shapes = [tuple(array.shape) for array in inputs]
        if self._bound is None or shapes != self._shapes:
            self._bound, self._shapes = self._bind(shapes), shapes
        self._bound.run(inputs, outputs)

    def _bind(self, shapes: list[tuple[int, ...]]) -> BoundLaunches:
        services, context = self._partition.services, self._context
        _ = services.gpu.driver  # its context is current from here on
        program = self._partition.find_program(shapes)
        size = program.launches.workspace_bytes
        if size > context.workspace_bytes:
            address = services.allocator.allocate(size, _ALIGNMENT, 0)
            if not address:
                raise ResourceError("no memory for a step", where=f"step '{self._partition.name[:200]}'", got=size)
            self._memory = _Owner(services.gpu, services.allocator, address)
            context = replace(context, workspace=address, workspace_bytes=size)
        return BoundLaunches(self._partition, program, replace(context, input_shapes=shapes))


class _ZeroedMemory:
    """Memory of one context that is zero between runs; it is given back with this object."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._blocks: list[int] = []

    def take(self, size_bytes: int) -> int:
        """Zeros."""
        address: int = self._services.allocator.allocate(max(size_bytes, 1), _ALIGNMENT, 0)
        if not address:
            raise ResourceError("no memory for a context", where="provider 'cuda'", got=f"{size_bytes} bytes")
        self._blocks.append(address)
        zeros, driver = np.zeros(size_bytes, np.uint8), self._services.gpu.driver
        driver.copy(address, zeros.ctypes.data, size_bytes, 0)
        driver.synchronize_stream(0)
        return address

    def __del__(self) -> None:
        for block in self._blocks:
            self._services.gpu.release_later(partial(self._services.allocator.deallocate, block))


class _Owner:
    """Gives memory back when the last array over it is gone."""

    def __init__(self, gpu: Gpu, memory: IGpuAllocator, address: int) -> None:
        self._gpu, self._memory, self._address = gpu, memory, address

    def __del__(self) -> None:
        self._gpu.release_later(partial(self._memory.deallocate, self._address))
