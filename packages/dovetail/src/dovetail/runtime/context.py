"""An execution context: one caller's state over an engine: shapes, addresses, memory, attached plugins.

A context may be used by one thread at a time. Addresses and arrays that are bound stay the caller's; everything else
belongs to the context and is reused from run to run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail._integers import as_address, as_integer, as_integers
from dovetail.allocators import IGpuAllocator, IOutputAllocator
from dovetail.errors import InputError, ResourceError, UsageError
from dovetail.expr import sizes_from_dims, sizes_or_unknown
from dovetail.finalizers import finalize
from dovetail.formats import pack
from dovetail.loggers import ErrorCode, ErrorRecorder, IErrorRecorder
from dovetail.plugin.interfaces import IPluginResourceContext
from dovetail.runtime.bind.arrays import array_at
from dovetail.runtime.bind.delivery import OutputDelivery, bound_bytes, no_address, tell_dims
from dovetail.runtime.bind.instance import ProgramInstance
from dovetail.runtime.bind.objects import refuse_address, shape_of
from dovetail.runtime.bind.profiles import check_profile, find_profile, known_dims
from dovetail.runtime.bind.results import make_results
from dovetail.runtime.bind.run import BoundRun, Visit
from dovetail.runtime.closing import close_all
from dovetail.runtime.devices.arrays import CallerArrays
from dovetail.runtime.devices.streams import ContextDevices
from dovetail.runtime.devices.uncaptured import UncapturedStep
from dovetail.runtime.limits import RunLimits, run_within
from dovetail.runtime.profiler import IProfiler, profile_with
from dovetail.runtime.steps.base import Array
from dovetail.runtime.steps.loop import Check
from dovetail.types import Dims, TensorFormat

if TYPE_CHECKING:
    from dovetail.runtime.bind.template import ProgramTemplate
    from dovetail.runtime.engine import Engine

__all__ = ["ExecutionContext", "IExecutionContext"]


class _ResourceContext(IPluginResourceContext):
    """What plugins attached to one context may use; it lives as long as they do."""

    def __init__(self, allocator: IGpuAllocator) -> None:
        self._allocator = allocator
        self.recorder: IErrorRecorder = ErrorRecorder()

    @property
    def gpu_allocator(self) -> IGpuAllocator:
        return self._allocator

    @property
    def error_recorder(self) -> IErrorRecorder:
        return self.recorder

    def report(self, error: Exception) -> None:
        """Record an error of a run."""
        self.recorder.report_error(ErrorCode.FAILED_EXECUTION, str(error).splitlines()[0])


class ExecutionContext:
    """Runs an engine: bind by address and ``execute_async_v3``, or pass arrays with ``run``."""

    def __init__(self, engine: Engine, streams: Mapping[str, int] | None = None, check: Check | None = None) -> None:
        self._engine = engine
        self.name = ""
        self._profiler: IProfiler | None = None
        self._limits: RunLimits | None = engine.run_limits
        self._resources = _ResourceContext(engine.allocator)
        self._instances: dict[int, ProgramInstance] = {}
        handles = self._check_streams(streams or {})
        self._devices = ContextDevices(
            engine.providers,
            capture_graphs=engine.capture_graphs,
            handles=handles,
            check=check,
            check_address=engine.address_check,
        )
        self._callers = CallerArrays(self._devices)
        self._owners = self._callers.owners
        """What keeps memory of callers on devices alive; cleared after each run."""
        self._shapes: dict[str, tuple[int, ...]] = engine.static_input_shapes()
        self._addresses: dict[str, int] = {}
        self._allocators: dict[str, IOutputAllocator] = {}
        self._stream = 0
        self._delivery = OutputDelivery(engine, self._devices, self._addresses, self._allocators)
        self._has_choice = engine.num_optimization_profiles > 1
        self._bound: BoundRun | None = None
        """The run for the shapes that are set; None when a run by address has to find it."""
        self._profile = 0
        self._instance = self._use_profile(0)
        self._finalizer = finalize(self, _destroy_instances, self._instances, self._devices)

    def __repr__(self) -> str:
        shapes = [f"{name}: {self._shapes.get(name, '?')}" for name in self._engine.input_names]
        name = f" '{self.name}'" if self.name else ""
        where = f"engine '{self._engine.name}', profile {self._profile}"
        return f"<ExecutionContext{name} of {where}, {', '.join(shapes) or 'no inputs'}>"

    @property
    def engine(self) -> Engine:
        """The engine this context runs."""
        return self._engine

    @property
    def error_recorder(self) -> IErrorRecorder:
        """Where the plugins of this context report errors; one that is set serves those attached already too."""
        return self._resources.recorder

    @error_recorder.setter
    def error_recorder(self, recorder: IErrorRecorder) -> None:
        self._resources.recorder = recorder

    @property
    def profiler(self) -> IProfiler | None:
        """Told the time of every layer; None for runs as fast as can be."""
        return self._profiler

    @profiler.setter
    def profiler(self, profiler: IProfiler | None) -> None:
        self._profiler = profiler
        self._choose_visits()

    @property
    def uncaptured_steps(self) -> list[UncapturedStep]:
        """The steps that split captured graphs: each is launched anew in every run, and says why.

        It is known after the first run over a shape, and empty where no device is used.
        """
        return self._instance.uncaptured

    @property
    def run_limits(self) -> RunLimits | None:
        """What each run may take; None for no limits. A profiled run has none of time."""
        return self._limits

    @run_limits.setter
    def run_limits(self, limits: RunLimits | None) -> None:
        self._limits = limits
        for instance in self._instances.values():
            instance.forget()
        self._bound = None
        self._choose_visits()

    def _choose_visits(self) -> None:
        """Have the steps of runs run one by one where somebody looks at each."""
        for instance in self._instances.values():
            instance.limits = self._limits
            if self._profiler is not None:
                instance.profile = profile_with(self._profiler)
            else:
                instance.profile = None if self._limits is None else run_within(self._limits)

    @property
    def active_optimization_profile(self) -> int:
        """The profile in use."""
        return self._profile

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int = 0) -> bool:
        """Choose the profile; shapes must then be set again if they do not fit it."""
        count = self._engine.num_optimization_profiles
        if not 0 <= as_integer(profile_index, "profile") < count:
            raise UsageError("no such profile", expected=f"0 to {count - 1}", got=profile_index)
        if profile_index != self._profile:
            self._instance = self._use_profile(profile_index)
            self._instance.announced = None
            self._profile = profile_index
            self._bound = None
        return True

    def _use_profile(self, index: int) -> ProgramInstance:
        if index not in self._instances:
            self._engine.require_weights()
            if self._limits is not None and not self._engine.manifest.open:
                self._limits.check_memory(self._engine.manifest.programs[index].arena_bytes)
            instance = self._engine.make_instance(index, self._resources, self._devices)
            instance.report = self._resources.report
            instance.set_stream(self._stream)
            self._instances[index] = instance
            self._choose_visits()
        return self._instances[index]

    def replace_constant(self, profile: int, blob: str, arrays: Mapping[str, Any]) -> None:
        """Use a new array for a constant, by the memory it lies in, from the next run on."""
        if profile in self._instances:
            self._instances[profile].replace_constant(blob, arrays)
            self._bound = None

    def renew_steps(self, profile: int, template: ProgramTemplate) -> None:
        """Use the kernels that the providers made anew, from the next run on."""
        if profile in self._instances:
            instance = self._instances[profile]
            instance.use_steps(template.renew_steps(instance.steps, self._devices))
            self._bound = None

    def close(self) -> None:
        """Destroy the attached plugins now; the context cannot run afterwards."""
        self._finalizer()
        self._bound = None
        self._addresses.clear()

    def _require_open(self) -> None:
        if not self._finalizer.alive:
            raise UsageError("the context is closed", fix="make another one with engine.create_execution_context()")

    def __enter__(self) -> ExecutionContext:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # shapes

    def set_input_shape(self, name: str, shape: Iterable[int]) -> bool:
        """Say what shape an input will have; checked against the engine and the profile at once."""
        self._require_open()
        tensor = self._engine.input_tensor(name)
        refuse_address(tensor)
        dims = as_integers(shape, f"input '{name}'")
        check_profile(self._engine.manifest, self._profile, tensor, dims)
        if self._shapes.get(name) != dims:
            self._shapes[name] = dims
            self._bound = None
        return True

    def get_tensor_shape(self, name: str) -> Dims:
        """The shape of a tensor for the inputs set so far; -1 where that is not known."""
        return Dims(self.find_shape(name))

    def find_shape(self, name: str) -> tuple[int, ...]:
        """The same for tensors of more dimensions too than the contract for plugins knows."""
        if name in self._shapes:
            return self._shapes[name]
        tensor = self._engine.tensor(name)
        if self.infer_shapes():
            return sizes_or_unknown(sizes_from_dims(known_dims(tensor)))
        symbols, found = self._instance.infer(self._input_shapes(), self._shape_inputs())
        shape = found[self._engine.value_index(self._profile, name)]
        if shape is not None and not self._instance.shapes.has_empty(symbols):
            return tuple(shape)
        return tell_dims(known_dims(tensor), self._instance.shapes, symbols)

    def infer_shapes(self) -> list[str]:
        """The names of inputs whose shape, or contents if it is a shape input, is still missing."""
        missing = [t.name for t in self._engine.manifest.inputs if t.type or t.name not in self._shapes]
        if not missing:
            missing = [t.name for t in self._engine.manifest.inputs if t.is_shape and t.name not in self._addresses]
        return missing

    @property
    def all_binding_shapes_specified(self) -> bool:
        """Whether every input shape is set."""
        return all(tensor.name in self._shapes for tensor in self._engine.manifest.inputs)

    def _input_shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple([self._shapes[tensor.name] for tensor in self._engine.manifest.inputs])

    def _shape_inputs(self) -> list[Array | None]:
        """The inputs whose contents decide shapes, at their addresses; None for all others."""
        if not self._instance.shapes.has_elements:
            return []
        return [
            array_at(self._addresses[tensor.name], self._shapes[tensor.name], np.dtype(tensor.dtype))
            if tensor.is_shape
            else None
            for tensor in self._engine.manifest.inputs
        ]

    # addresses

    def set_tensor_address(self, name: str, memory: int) -> bool:
        """Bind an input or output to an address.

        The memory is of the kind that ``engine.get_tensor_location`` reports: the host's, or that of the device
        ``engine.get_tensor_memory``.

        Raises:
            InputError: The address is in another kind of memory, as far as the engine's devices can tell.
        """
        known = self._addresses.get(name)
        if known is None:
            self._require_open()
            refuse_address(self._engine.tensor(name))
        address = memory if memory.__class__ is int and memory >= 0 else as_address(memory, f"tensor '{name}'")
        if address != known:
            check = self._devices.check_address
            if check is not None:
                check(self._engine.get_tensor_memory(name), address, f"tensor '{name}'")
            self._addresses[name] = address
        return True

    def set_tensor_addresses(self, addresses: Sequence[int]) -> bool:
        """Bind all inputs and outputs in one call: an address for each tensor, in the engine's order."""
        names = self._engine.tensor_names
        if len(addresses) != len(names):
            expected = f"{len(names)} ({', '.join(names)})"
            raise InputError("wrong number of bindings", expected=expected, got=len(addresses))
        for name, address in zip(names, addresses):  # noqa: B905 - counted above
            self.set_tensor_address(name, address)
        return True

    def get_tensor_address(self, name: str) -> int:
        """What is bound; 0 when nothing is."""
        self._engine.tensor(name)
        return self._addresses.get(name, 0)

    def set_output_allocator(self, name: str, output_allocator: IOutputAllocator | None) -> bool:
        """Let the caller provide memory for an output once its size is known."""
        self._require_open()
        tensor = self._engine.output_tensor(name)
        refuse_address(tensor)
        if tensor.alias is not None and output_allocator is not None:
            raise UsageError(
                f"it shares memory with input '{tensor.alias}', so no allocator can give it any",
                where=f"output '{name}'",
                fix=f"call set_tensor_address('{name}', ...) with the address of '{tensor.alias}'",
            )
        if output_allocator is None:
            self._allocators.pop(name, None)
        else:
            self._allocators[name] = output_allocator
        return True

    def get_output_allocator(self, name: str) -> IOutputAllocator | None:
        """The allocator set for an output."""
        return self._allocators.get(name)

    def get_max_output_size(self, name: str) -> int:
        """Bytes that the output can take at most for the shapes set now; -1 when there is no bound."""
        tensor = self._engine.output_tensor(name)
        if self.infer_shapes():
            return -1
        symbols, _ = self._instance.infer(self._input_shapes(), self._shape_inputs())
        return bound_bytes(tensor, self._instance.shapes, symbols)

    # running by address

    def bind(self, shapes: Sequence[tuple[int, ...]]) -> BoundRun:
        """The run over inputs of these shapes, in the engine's order, for hosts that keep addresses themselves.

        Shapes must not depend on the contents of inputs. It is good until the context is closed or its engine refitted;
        a context may forget it when many others are bound, and then binds it again.
        """
        return self._instance.find(tuple(shapes))

    def execute_async_v3(self, stream_handle: int = 0) -> bool:
        """Run with what is bound, on a queue of the caller's or, with 0, on the context's own.

        After ``use_streams`` 0 stands for the queues that were chosen there.

        Plugins on the host get the handle as it is, and the work of the engine's device goes to that queue. When all
        inputs and outputs lie on the device, nobody waits for a queue of the caller's: the work is ordered when this
        returns. It is done then on the context's own queue, and on a CPU.
        """
        if stream_handle != self._stream:
            self._use_stream(as_address(stream_handle, "execute_async_v3"))
        run = self._bound
        if run is None:
            run = self._bind_shapes()
        results = run.execute(self._delivery.find_addresses(run))
        if self._allocators or results:
            self._delivery.deliver(run, results)
        return True

    def _use_stream(self, handle: int) -> None:
        devices = self._engine.device_names
        if handle and len(devices) > 1:
            raise UsageError(
                "the engine has several devices, and a stream belongs to one",
                where="execute_async_v3",
                expected=f"0, for the engine runs on {', '.join(devices)}",
                fix="call use_streams with a handle for each device",
            )
        self.use_streams(dict.fromkeys(devices, handle))
        self._set_stream(handle)

    def use_streams(self, handles: Mapping[str, int]) -> None:
        """Put the work of devices on queues of the caller's from the next run on, behind what is under way.

        Nothing is bound anew. A queue must live until the work on it is done: with the first run on another queue, and
        when the context is closed, the host waits for the device and touches the old queue no more.

        Args:
            handles: The id of a device's provider -> the handle of a queue; 0 for the context's own.
        """
        self._require_open()
        self._devices.use(self._check_streams(handles))
        self._set_stream(0)  # the next handle is another one, whatever it was before

    def _set_stream(self, handle: int) -> None:
        self._stream = self._delivery.stream = handle
        for instance in self._instances.values():
            instance.set_stream(handle)

    def _check_streams(self, handles: Mapping[str, int]) -> dict[str, int]:
        unknown = sorted(handles.keys() - set(self._engine.device_names)) if handles else ()
        if unknown:
            expected = ", ".join(self._engine.device_names) or "no device"
            raise UsageError(f"the engine does not run on {', '.join(unknown)}", where="streams", expected=expected)
        return {name: as_address(handle, f"stream on '{name}'") for name, handle in handles.items()}

    def execute_v2(self, bindings: Sequence[int]) -> bool:
        """Run with one address for each tensor, in the engine's order."""
        self.set_tensor_addresses(bindings)
        return self.execute_async_v3(0)

    def _bind_shapes(self) -> BoundRun:
        manifest = self._engine.manifest
        for tensor in (*manifest.inputs, *manifest.outputs):
            refuse_address(tensor)
        missing = [tensor.name for tensor in manifest.inputs if tensor.name not in self._shapes]
        if missing:
            raise InputError("input shapes are not set", where=", ".join(missing), fix="call set_input_shape for each")
        for tensor in manifest.inputs:
            if tensor.name not in self._addresses:
                raise no_address("input", tensor.name, "call set_tensor_address")
        run = self._instance.find(self._input_shapes(), self._shape_inputs())
        if not self._instance.shapes.has_elements:
            self._bound = run
        return run

    # running with arrays

    def call(self, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> list[Any]:
        """``run`` over arrays in order or by name, in the first profile that allows them."""
        if named or self._has_choice:
            return self._run(self._gather(arrays, named))
        return self._run(self._engine.check_inputs(arrays, self._callers))

    def call_on_device(self, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> list[Any]:
        """The same with results of devices left there."""
        return self._run_into(self._gather(arrays, named), {}, keep=True)

    def _gather(self, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> Sequence[Any]:
        engine, callers = self._engine, self._callers
        inputs = engine.gather_inputs(arrays, named, callers) if named else engine.check_inputs(arrays, callers)
        if self._has_choice:
            self.set_optimization_profile_async(find_profile(engine.manifest, inputs))
        return inputs

    def run(
        self,
        inputs: Sequence[Any] | dict[str, Any],
        outputs: Mapping[str, Any] | None = None,
        *,
        keep_on_device: bool = False,
    ) -> list[Any]:
        """Run over arrays in the engine's input order, or by name; the returned arrays belong to the caller.

        A sequence is a list of arrays, an empty optional is None, and strings are an array of ``str``. For an input
        that lies on a device, an array of that device is used where it is, and one of the host is copied there.

        Args:
            inputs: The arrays.
            outputs: By name, arrays of the device that outputs which lie there are written to; these are then what is
                returned for them.
            keep_on_device: Whether other outputs that lie on a device stay there, as ``DeviceTensor``; else they are
                copied to the host.
        """
        if isinstance(inputs, dict):
            checked = self._engine.gather_inputs((), inputs, self._callers)
        else:
            checked = self._engine.check_inputs(inputs, self._callers)
        if outputs or keep_on_device:
            return self._run_into(checked, outputs or {}, keep=keep_on_device)
        return self._run(checked)

    def observe(self, inputs: Sequence[Any], visit: Visit) -> list[Any]:
        """Run over arrays with somebody who runs the steps one by one, such as ``dovetail.runtime.observe`` gives."""
        return self._run(self._engine.check_inputs(inputs, self._callers), visit)

    def _run(self, inputs: Sequence[Any], visit: Visit | None = None) -> list[Any]:
        run = self._find_run(inputs)
        try:
            arrays = inputs if not self._engine.has_formatted_io else self._pack_inputs(inputs)
            return run.outputs.finish(run.run(arrays, run.outputs.make(arrays), visit))
        except MemoryError as error:
            raise ResourceError("memory ran out", fix="use smaller shapes, or a machine with more memory") from error
        finally:
            if self._owners:
                self._owners.clear()

    def _find_run(self, inputs: Sequence[Any]) -> BoundRun:
        if self._engine.has_objects:
            return self._instance.find(tuple([shape_of(value) for value in inputs]), inputs)
        return self._instance.find(tuple([array.shape for array in inputs]), inputs)

    def _pack_inputs(self, inputs: Sequence[Any]) -> list[Any]:
        formats = [TensorFormat[tensor.format] for tensor in self._engine.manifest.inputs]
        return [a if f is TensorFormat.LINEAR else pack(a, f) for a, f in zip(inputs, formats, strict=True)]

    def _run_into(self, inputs: Sequence[Any], outputs: Mapping[str, Any], *, keep: bool) -> list[Any]:
        """Run with some results in memory of devices: the caller's arrays, or new ones."""
        run = self._find_run(inputs)
        arrays = inputs if not self._engine.has_formatted_io else self._pack_inputs(inputs)
        tensors, shapes = self._engine.manifest.outputs, run.output_shapes
        kept = make_results(tensors, shapes, outputs, callers=self._callers, devices=self._devices, keep=keep)
        made = run.outputs.make(arrays, skip=kept)
        targets = [kept[i].target if i in kept else array for i, array in enumerate(made)]
        try:
            finished = run.outputs.finish(run.run(arrays, targets, keep=keep), skip=kept)
        finally:
            self._owners.clear()
        return [kept[i].give(result) if i in kept else result for i, result in enumerate(finished)]


IExecutionContext = ExecutionContext
"""The contract's name."""


def _destroy_instances(instances: dict[int, ProgramInstance], devices: ContextDevices) -> None:
    made = list(instances.values())
    instances.clear()
    plugins = [step.handle.destroy for instance in made for step in instance.all_plugin_steps()]
    # Work that is under way uses what the instances have, so nothing of theirs goes before it was waited for.
    close_all(
        [*(instance.forget for instance in made), devices.finish, *plugins, *(i.close for i in made), devices.close]
    )
