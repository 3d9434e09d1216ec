"""A loaded plan: its tensors, its programs made ready, and the pool of contexts behind ``engine(x)``.

An engine may be shared by threads: it is not changed by runs. Contexts are what a thread needs of its own.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail._doors import open_door
from dovetail.allocators import IGpuAllocator
from dovetail.decoding import judging
from dovetail.errors import InputError, PlanError, UsageError
from dovetail.finalizers import finalize
from dovetail.host_memory import HostMemory
from dovetail.loggers import ILogger, Severity
from dovetail.plan.container import PlanFile
from dovetail.plan.manifest import Manifest, TensorRecord
from dovetail.plan.value_types import parse_value_type
from dovetail.plugin.interfaces import IPluginResourceContext
from dovetail.plugin.registry import PluginRegistry
from dovetail.provider.options import Providers
from dovetail.runtime.bind.arrays import as_input
from dovetail.runtime.bind.instance import ProgramInstance
from dovetail.runtime.bind.objects import as_object
from dovetail.runtime.bind.partitions import Partitions
from dovetail.runtime.bind.template import ProgramTemplate, create_runtime_plugin
from dovetail.runtime.closing import close_all
from dovetail.runtime.context import ExecutionContext
from dovetail.runtime.description import PlanDescription
from dovetail.runtime.devices.access import AddressCheck, make_address_check
from dovetail.runtime.devices.arrays import CallerArrays
from dovetail.runtime.devices.streams import ContextDevices
from dovetail.runtime.devices.tensors import DeviceTensor
from dovetail.runtime.limits import RunLimits
from dovetail.runtime.memory.blobs import BlobStore
from dovetail.runtime.memory.blocks import DeviceWeights
from dovetail.runtime.steps.base import Array
from dovetail.runtime.steps.loop import Check

if TYPE_CHECKING:
    from dovetail.plan.summary import EngineReport
    from dovetail.runtime.benchmark import BenchmarkResult

__all__ = ["Engine", "ICudaEngine"]


class Engine(PlanDescription):
    """Everything a plan holds, ready to run. Made by ``Runtime.deserialize_cuda_engine`` or ``dovetail.load``."""

    def __init__(
        self,
        manifest: Manifest,
        file: PlanFile,
        registry: PluginRegistry,
        *,
        blobs: BlobStore | None = None,
        providers: Providers | None = None,
        allocator: IGpuAllocator | None = None,
        owns_registry: bool = False,
        logger: ILogger | None = None,
    ) -> None:
        super().__init__(manifest)
        self.registry = registry
        self._file = file
        self.blobs = blobs or BlobStore(manifest.blobs, file)
        self.providers = providers or Providers()
        """The providers of the plan, with the options that they run with here."""
        self.allocator = allocator or self.providers[manifest.devices[0].provider].allocator
        self.capture_graphs = True
        """Whether contexts made from now on capture what devices can replay."""
        self._limits: RunLimits | None = None
        self._host_allocator = allocator
        self._weights = DeviceWeights(self.providers)
        self._partitions = Partitions(self.blobs)
        self.templates = [
            ProgramTemplate(program, self.blobs.array, self.providers, self._partitions, self._weights)
            for program in manifest.programs
        ]
        for note in self._partitions.notes:
            (logger or registry.logger).log(Severity.WARNING, note)
        self._create_plugins()
        self.contexts: weakref.WeakSet[ExecutionContext] = weakref.WeakSet()
        self._idle: deque[ExecutionContext] = deque()
        self._attach_lock = threading.Lock()
        self._plain_dtypes = [None if tensor.type else np.dtype(tensor.dtype) for tensor in manifest.inputs]
        """The type of each input that is an array of numbers, None for objects."""
        self._finalizer = finalize(
            self, _destroy, self.templates, registry if owns_registry else None, self._partitions, self._weights
        )

    def _create_plugins(self) -> None:
        """Create all plugins or none: nothing is made before every creator is found."""
        for record in (record for template in self.templates for record in template.plugin_records()):
            self.registry.get_creator(record.name, record.version, record.namespace)
        try:
            for template in self.templates:
                template.create_plugins(partial(create_runtime_plugin, registry=self.registry))
        except BaseException:
            _destroy(self.templates, None, self._partitions, self._weights)
            raise

    # running

    @property
    def run_limits(self) -> RunLimits | None:
        """What each run may take (``RunLimits``), in contexts that are there and in those made from now on."""
        return self._limits

    @run_limits.setter
    def run_limits(self, limits: RunLimits | None) -> None:
        self._limits = limits
        for context in self._live_contexts():
            context.run_limits = limits

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """Run over arrays: in the order of inputs, by name, or in one mapping by name.

        Of several profiles the first that allows the shapes is used.

        Returns:
            The array of the output where the engine has one; where it has several, a dict by name, in the order of
            ``output_names``. The arrays belong to the caller. ``run`` gives a dict in both cases.
        """
        if len(arrays) == 1 and arrays[0].__class__ is not np.ndarray:
            arrays, named = self._open_mapping(arrays, named)
        try:
            context = self._idle.pop()
        except IndexError:
            context = self.create_execution_context()
        try:
            results = context.call(arrays, named)
        finally:
            self._idle.append(context)
        return results[0] if len(results) == 1 else dict(zip(self.output_names, results))  # noqa: B905

    def run(self, *arrays: Any, output_names: Sequence[str] | None = None, **named: Any) -> dict[str, Any]:
        """Run over the same arguments, and give a dict by name also where there is one output.

        Args:
            arrays: In the order of inputs, or one mapping by name.
            output_names: The outputs to give, in this order; all of them without it.
            named: Arrays by name.

        Raises:
            UsageError: There is no output of such a name.
        """
        wanted = self._find_outputs(output_names)
        result = self(*arrays, **named)
        outputs = {self.output_names[0]: result} if len(self.output_names) == 1 else result
        return {name: outputs[name] for name in wanted}

    def _find_outputs(self, names: Sequence[str] | None) -> list[str]:
        if isinstance(names, str):
            raise UsageError("this is one name", where="output_names", expected=f"a list, such as [{names!a}]")
        wanted = self.output_names if names is None else list(names)
        for name in wanted:
            self.output_tensor(name)
        return wanted

    async def run_async(self, *arrays: Any, output_names: Sequence[str] | None = None, **named: Any) -> Any:
        """``engine(...)`` in a thread, to be awaited; several may be awaited at once.

        With ``output_names`` it is ``run``, which gives a dict of these. A task that is cancelled stops waiting; the
        run it has started ends by itself.

        Raises:
            UsageError: There is no output of such a name.
        """
        import asyncio  # slow to import, and most callers run on their own thread

        if output_names is not None:
            return await asyncio.to_thread(self.run, *arrays, output_names=output_names, **named)
        return await asyncio.to_thread(self, *arrays, **named)

    def benchmark(
        self,
        *arrays: Any,
        warmup_s: float = 0.2,
        duration_s: float | None = None,
        iterations: int | None = None,
        **named: Any,
    ) -> BenchmarkResult:
        """Time ``engine(...)`` over the same arrays again and again.

        Args:
            arrays: As for a run; without any, what ``dovetail bench`` makes up, of the fixed shapes, or those that the
                first profile is tuned for.
            warmup_s: How long to run before the first run that counts.
            duration_s: How long to measure, ten runs at least; a second unless ``iterations`` is given.
            iterations: How many runs to measure; with a duration, whichever is over first.
            named: Arrays by name.
        """
        from dovetail.runtime.benchmark import benchmark_engine
        from dovetail.runtime.measuring import Pace

        seconds = 1.0 if duration_s is None and iterations is None else duration_s
        pace = Pace(warmup_s=warmup_s, duration_s=seconds, iterations=iterations)
        arrays, named = self._open_mapping(arrays, named)
        given = self._order_inputs(arrays, named) if arrays or named else self._make_inputs()
        return benchmark_engine(self, given, pace)

    def _make_inputs(self) -> list[Any]:
        return list(open_door("make_benchmark_inputs")(self.manifest))

    def report(self) -> EngineReport:
        """What the plan says of itself: data (``to_dict``), text, a table in a notebook, and a page (``save``)."""
        from dovetail.plan.summary import EngineReport

        return EngineReport(self.manifest, self._file)

    def _open_mapping(self, arrays: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arrays by name out of one mapping; an engine whose first input is a map takes that for its value."""
        if len(arrays) != 1 or not isinstance(arrays[0], Mapping) or self._takes_map:
            return arrays, named
        repeated = arrays[0].keys() & named.keys()
        if repeated:
            raise InputError(f"input(s) {', '.join(map(str, sorted(repeated)))} given twice", where="inputs")
        return (), {**arrays[0], **named}

    @cached_property
    def _takes_map(self) -> bool:
        first = self.manifest.inputs[0].type if self.manifest.inputs else ""
        return bool(first) and bool(parse_value_type(first).key)

    def run_on_device(self, *arrays: Any, **named: Any) -> Any:
        """The same with outputs that lie on a device left there, as ``DeviceTensor``.

        A handle is taken by other engines on the device, and by everything that imports DLPack; ``numpy()`` copies.
        """
        arrays, named = self._open_mapping(arrays, named)
        try:
            context = self._idle.pop()
        except IndexError:
            context = self.create_execution_context()
        try:
            results = context.call_on_device(arrays, named)
        finally:
            self._idle.append(context)
        return results[0] if len(results) == 1 else dict(zip(self.output_names, results, strict=True))

    def gather_inputs(
        self, arrays: tuple[Any, ...], named: Mapping[str, Any], callers: CallerArrays | None = None
    ) -> Sequence[Any]:
        """What the caller gave, some of it by name, in the order of inputs and checked."""
        return self.check_inputs(self._order_inputs(arrays, named), callers)

    def _order_inputs(self, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """The arrays in order, then those by name in the order of the other inputs."""
        names = self.input_names
        unknown = named.keys() - set(names[len(arrays) :])
        if unknown:
            shown = ", ".join(sorted(map(str, unknown)))
            raise InputError(f"unknown or repeated input(s) {shown}", expected=f"inputs {', '.join(names)}")
        missing = [name for name in names[len(arrays) :] if name not in named]
        if missing:
            raise InputError(f"nothing was given for input(s) {', '.join(missing)}", expected=", ".join(names))
        return (*arrays, *(named[name] for name in names[len(arrays) :]))

    def check_inputs(self, arrays: Sequence[Any], callers: CallerArrays | None = None) -> Sequence[Any]:
        """One array an input, in order, each of the type that the input has; for objects, lists, None and strings.

        Args:
            arrays: What the caller gave.
            callers: What takes arrays of devices for inputs that lie there; None for arrays of the host only.
        """
        if len(arrays) != len(self.input_names):
            names = ", ".join(self.input_names)
            raise InputError("wrong number of inputs", expected=f"{len(self.input_names)} ({names})", got=len(arrays))
        return [
            value
            if value.__class__ is np.ndarray and value.dtype is dtype and value.flags.carray
            else _check_input(value, tensor, callers, is_updated=tensor.name in self.updated_inputs)
            for value, tensor, dtype in zip(arrays, self.manifest.inputs, self._plain_dtypes)  # noqa: B905 - counted
        ]

    @cached_property
    def device_names(self) -> list[str]:
        """The providers with memory of their own that the engine runs on, by id."""
        names = [device.provider for device in self.manifest.devices]
        return [name for name in names if not self.providers[name].memory.is_host]

    @cached_property
    def address_check(self) -> AddressCheck | None:
        """Check of addresses that callers bind; None if the engine is on the host only."""
        return make_address_check(self.providers, self.device_names)

    def create_execution_context(
        self, strategy: Any = None, *, streams: Mapping[str, int] | None = None, check: Check | None = None
    ) -> ExecutionContext:
        """A context of its own for one thread; every plugin is attached to it.

        Args:
            strategy: Taken for the contract's sake.
            streams: Queues of the caller's to begin on, as ``ExecutionContext.use_streams`` takes them.
            check: Called between the steps of every run; raises ``RunCancelledError`` where the run is to end.
        """
        self._require_open()
        context = ExecutionContext(self, streams, check)
        with self._attach_lock:
            self.contexts.add(context)
        return context

    def _require_open(self) -> None:
        if not self._finalizer.alive:
            raise UsageError("the engine is closed", fix="load or build it again")

    def _live_contexts(self) -> list[ExecutionContext]:
        with self._attach_lock:
            return list(self.contexts)

    def make_instance(
        self, profile: int, resources: IPluginResourceContext, devices: ContextDevices
    ) -> ProgramInstance:
        """Instantiate the program of a profile; attaching is serialised because plugins need not be thread-safe."""
        with self._attach_lock, judging(_unusable):
            return self.templates[profile].make_instance(
                self.manifest, profile, resources, devices=devices, allocator=self._host_allocator
            )

    def require_weights(self) -> None:
        """Fail when the plan was stripped and not refitted yet."""
        if self.blobs.missing:
            names = ", ".join(sorted(self.blobs.missing)[:5])
            raise UsageError(
                f"{len(self.blobs.missing)} weight(s) are not in the plan: {names}",
                fix="refit the engine with them first (dovetail.Refitter)",
            )

    def replace_constant(self, blob: str, array: Array) -> None:
        """Use a new array for a constant, in everything made from now on and in every live context."""
        self._weights.forget(blob)
        slots = [slot for template in self.templates for slot in template.constant_slots(blob)]
        memories = {owner.program.values[index].memory for owner, index in slots}
        arrays = {memory: self._weights.place(memory, blob, array) for memory in memories}
        for owner, index in slots:
            owner.constants[index] = arrays[owner.program.values[index].memory]
        for profile in range(len(self.templates)):
            for context in self._live_contexts():
                context.replace_constant(profile, blob, arrays)
        self._weights.release()

    def recompile(self) -> None:
        """Have the providers make their steps again with the weights of now, in every live context too."""
        self._partitions.forget()
        for profile, template in enumerate(self.templates):
            template.recompile(self.blobs.array)
            for context in self._live_contexts():
                context.renew_steps(profile, template)

    def refit_partitions(self, blobs: Mapping[str, Array]) -> None:
        """Give new weights to the partitions that read them, for providers that take them in place."""
        self._partitions.refit(blobs)

    def close(self) -> None:
        """Destroy contexts and plugins now."""
        contexts = self._live_contexts()
        self._idle.clear()
        close_all([*(context.close for context in contexts), self._finalizer])

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # saving

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan to a file, atomically."""
        from dovetail.runtime.save import save_engine

        if not isinstance(path, str | os.PathLike):
            raise UsageError("not a path", got=type(path).__name__, fix="pass the name of the file to write")
        self._require_open()
        save_engine(self, path)

    def serialize(self, *, exclude_weights: bool = False) -> HostMemory:
        """The plan as bytes.

        Args:
            exclude_weights: Whether weights that can be replaced are left out; a refit puts them in again.
        """
        from dovetail.runtime.save import serialize_engine

        self._require_open()
        return HostMemory(serialize_engine(self, exclude_weights=exclude_weights))

    def place_array(self, name: str, array: Array) -> Array | DeviceTensor:
        """An array as it can be bound to a tensor by address: itself, or a copy in the memory of a device."""
        memory = self.get_tensor_memory(name)
        return DeviceTensor.copy_of(self.providers[memory], array) if memory else array


ICudaEngine = Engine
"""The contract's name."""


def _unusable(reason: str) -> PlanError:
    return PlanError(f"no context can be made for the plan: {reason}", fix="build the plan again")


def _check_input(value: Any, tensor: TensorRecord, callers: CallerArrays | None, *, is_updated: bool) -> Any:
    if tensor.memory and callers is not None:
        array = callers.import_input(value, tensor, is_updated=is_updated)
        if array is not None:
            return array
    if is_updated:
        _require_rows(value, tensor)
    return as_object(value, tensor) if tensor.type else as_input(value, tensor, np.dtype(tensor.dtype))


def _require_rows(value: Any, tensor: TensorRecord) -> None:
    """What is updated in place cannot be copied first."""
    if isinstance(value, np.ndarray) and not (value.flags.c_contiguous and value.flags.aligned):
        raise InputError(
            "an input that is updated in place is not contiguous, or not aligned",
            where=f"input '{tensor.name}'",
            fix="pass a copy of it; the output is written into the same memory",
        )


def _destroy(
    templates: list[ProgramTemplate], registry: PluginRegistry | None, partitions: Partitions, weights: DeviceWeights
) -> None:
    handles = [handle.destroy for template in templates for handle in template.handles()]
    registries = [] if registry is None else [registry.close]
    close_all([*handles, *registries, partitions.close, weights.close])
