"""An execution context: one caller's state over an engine: shapes, addresses, memory, attached plugins.

A context may be used by one thread at a time. Addresses and arrays that are bound stay the caller's; everything else
belongs to the context and is reused from run to run.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail._integers import as_address, as_integer, as_integers
from dovetail.allocators import IGpuAllocator, IOutputAllocator
from dovetail.errors import InputError, InternalError, UsageError
from dovetail.formats import pack, packed_shape, size_bytes
from dovetail.loggers import ErrorCode, ErrorRecorder, IErrorRecorder
from dovetail.plan.manifest import TensorRecord
from dovetail.plugin.interfaces import IPluginResourceContext
from dovetail.provider.devices import Stream
from dovetail.runtime.bind.arrays import PackedMemory, array_at
from dovetail.runtime.bind.instance import ProgramInstance
from dovetail.runtime.bind.objects import refuse_address, shape_of
from dovetail.runtime.bind.outputs import require_array
from dovetail.runtime.bind.profiles import check_profile, find_profile, known_dims
from dovetail.runtime.bind.run import BoundRun, Visit
from dovetail.runtime.devices.placement import import_outputs
from dovetail.runtime.devices.streams import ContextDevices
from dovetail.runtime.profiler import IProfiler, profile_with
from dovetail.runtime.steps.base import Array
from dovetail.types import Dims, TensorFormat, data_type_from_numpy

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

    def __init__(self, engine: Engine, streams: Mapping[str, Stream] | None = None) -> None:
        self._engine = engine
        self.name = ""
        self._profiler: IProfiler | None = None
        self._resources = _ResourceContext(engine.allocator)
        self._instances: dict[int, ProgramInstance] = {}
        self._devices = ContextDevices(engine.providers, capture_graphs=engine.capture_graphs, streams=streams)
        self._shapes: dict[str, tuple[int, ...]] = engine.static_input_shapes()
        self._addresses: dict[str, int] = {}
        self._allocators: dict[str, IOutputAllocator] = {}
        self._stream = 0
        self._has_choice = engine.num_optimization_profiles > 1
        self._bound: BoundRun | None = None
        """The run for the shapes that are set; None when a run by address has to find it."""
        self._profile = 0
        self._instance = self._use_profile(0)
        self._finalizer = weakref.finalize(self, _destroy_instances, self._instances, self._devices)

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
        for instance in self._instances.values():
            instance.profile = None if profiler is None else profile_with(profiler)

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
            instance = self._engine.make_instance(index, self._resources, self._devices)
            instance.report = self._resources.report
            instance.set_stream(self._stream)
            self._instances[index] = instance
            self.profiler = self._profiler
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

    def __enter__(self) -> ExecutionContext:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # shapes

    def set_input_shape(self, name: str, shape: Iterable[int]) -> bool:
        """Say what shape an input will have; checked against the engine and the profile at once."""
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
        if name in self._shapes:
            return Dims(self._shapes[name])
        tensor = self._engine.tensor(name)
        if self.infer_shapes():
            return Dims(dim if isinstance(dim, int) else -1 for dim in known_dims(tensor))
        symbols, found = self._instance.infer(self._input_shapes(), self._shape_inputs())
        shape = found[self._engine.value_index(self._profile, name)]
        if shape is not None and not self._instance.shapes.has_empty(symbols):
            return Dims(shape)
        return Dims(-1 if dim is None else self._evaluate(dim, symbols) for dim in known_dims(tensor))

    def _evaluate(self, dim: Any, symbols: Sequence[int]) -> int:
        return max(self._instance.shapes.evaluate_dim(dim, symbols), 0)

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
        """Bind an input or output to memory of the caller's."""
        if name not in self._addresses:
            refuse_address(self._engine.tensor(name))
        self._addresses[name] = (
            memory if memory.__class__ is int and memory >= 0 else as_address(memory, f"tensor '{name}'")
        )
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
        return self._bound_bytes(tensor, self._instance.infer(self._input_shapes(), self._shape_inputs())[0])

    def _bound_bytes(self, tensor: TensorRecord, symbols: Sequence[int]) -> int:
        dims = tensor.dims if tensor.max_dims is None else tensor.max_dims
        if dims is None or any(dim is None for dim in dims):
            return -1
        shape = [self._evaluate(dim, symbols) for dim in dims]
        return _memory_bytes(tensor, packed_shape(shape, TensorFormat[tensor.format]))

    # running by address

    def bind(self, shapes: Sequence[tuple[int, ...]]) -> BoundRun:
        """The run over inputs of these shapes, in the engine's order, for hosts that keep addresses themselves.

        Shapes must not depend on the contents of inputs. It is good until the context is closed or its engine refitted;
        a context may forget it when many others are bound, and then binds it again.
        """
        return self._instance.find(tuple(shapes))

    def execute_async_v3(self, stream_handle: int = 0) -> bool:
        """Run with what is bound; on a CPU the work is done when this returns."""
        if stream_handle != self._stream:
            self._stream = int(stream_handle)
            for instance in self._instances.values():
                instance.set_stream(self._stream)
        run = self._bound
        if run is None:
            run = self._bind_shapes()
        results = run.execute(self._find_addresses(run))
        if self._allocators or results:
            self._deliver(run, results)
        return True

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
                raise _no_address("input", tensor.name, "call set_tensor_address")
        run = self._instance.find(self._input_shapes(), self._shape_inputs())
        if not self._instance.shapes.has_elements:
            self._bound = run
        return run

    def _find_addresses(self, run: BoundRun) -> tuple[int, ...]:
        known = self._addresses
        if not self._allocators:
            try:
                return tuple([known[name] for name in self._engine.tensor_names])
            except KeyError:
                pass  # an output that only the run measures needs none before it
        tensors, shapes = self._engine.manifest.outputs, run.output_shapes
        outputs = [self._output_address(tensor, shape) for tensor, shape in zip(tensors, shapes, strict=True)]
        return (*[known[name] for name in self._engine.input_names], *outputs)

    def _output_address(self, tensor: TensorRecord, shape: tuple[int, ...] | None) -> int:
        address = self._addresses.get(tensor.name)
        if shape is None:
            return address or 0
        allocator = self._allocators.get(tensor.name)
        if allocator is not None:
            size = _memory_bytes(tensor, packed_shape(shape, TensorFormat[tensor.format]))
            return _reallocate(allocator, tensor.name, address or 0, size, self._stream)
        if address is None:
            raise _no_address("output", tensor.name, "call set_tensor_address or set_output_allocator")
        return address

    def _deliver(self, run: BoundRun, results: Sequence[Any]) -> None:
        """Hand over outputs whose shape only the run told, and tell allocators the shapes of all."""
        made = results or [None] * len(run.output_shapes)  # where all shapes are known, all is where it belongs
        for tensor, shape, array in zip(self._engine.manifest.outputs, run.output_shapes, made, strict=True):
            allocator = self._allocators.get(tensor.name)
            expected = None if shape is None else packed_shape(shape, TensorFormat[tensor.format])
            # Where a dimension is 0, a step may leave an array of its own in place of the memory that it was given.
            if results and (expected is None or array.shape != expected):
                self._copy_out(run, tensor, array, allocator)
            if allocator is not None:
                allocator.notify_shape(tensor.name, Dims(array.shape if shape is None else shape))

    def _copy_out(self, run: BoundRun, tensor: TensorRecord, array: Array, allocator: IOutputAllocator | None) -> None:
        address = self._addresses.get(tensor.name, 0)
        size = _memory_bytes(tensor, require_array(array, tensor).shape)
        if allocator is not None:
            address = self._addresses[tensor.name] = _reallocate(allocator, tensor.name, address, size, self._stream)
        if not address:
            fix = "call set_output_allocator: the shape depends on the data"
            raise InputError("no memory is set", where=f"output '{tensor.name}'", fix=fix)
        if allocator is None:
            self._check_bound(tensor, size, run.symbols)
        self._check_told(tensor, array.shape, run.symbols)
        if data_type_from_numpy(array.dtype).bits < 8:
            PackedMemory(address, array.shape, array.dtype).write(array)
        else:
            np.copyto(array_at(address, array.shape, array.dtype), array)

    def _check_bound(self, tensor: TensorRecord, size: int, symbols: Sequence[int]) -> None:
        """Memory that the caller bound beforehand is as large as the bound says, if there is one."""
        room = self._bound_bytes(tensor, symbols)
        if size > room:
            raise InputError(
                "the result has no bound, so no memory is large enough" if room < 0 else "the result is over its bound",
                where=f"output '{tensor.name}'",
                expected=f"at most {max(room, 0)} bytes",
                got=size,
                fix="call set_output_allocator: the shape depends on the data",
            )

    def _check_told(self, tensor: TensorRecord, shape: tuple[int, ...], symbols: Sequence[int]) -> None:
        """Dimensions that the caller was told before the run are those of the result, unless that has no elements."""
        if tensor.format != "LINEAR" or tensor.dims is None or 0 in shape:
            return
        told = [-1 if dim is None else self._evaluate(dim, symbols) for dim in tensor.dims]
        if len(told) != len(shape) or any(dim not in (-1, size) for dim, size in zip(told, shape, strict=True)):
            raise InternalError(
                "a step gave another shape than the plan says",
                where=f"output '{tensor.name}'",
                expected=tuple(told),
                got=shape,
            )

    # running with arrays

    def call(self, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> list[Any]:
        """``run`` over arrays in order or by name, in the first profile that allows them."""
        inputs = self._engine.gather_inputs(arrays, named) if named else self._engine.check_inputs(arrays)
        if self._has_choice:
            self.set_optimization_profile_async(find_profile(self._engine.manifest, inputs))
        return self._run(inputs)

    def run(self, inputs: Sequence[Any], outputs: Mapping[str, Any] | None = None) -> list[Any]:
        """Run over arrays in the engine's input order; the returned arrays belong to the caller.

        A sequence is a list of arrays, an empty optional is None, and strings are an array of ``str``. Outputs that a
        device makes can be written to arrays of that device, by name; these are then what is returned for them.
        """
        checked = self._engine.check_inputs(inputs)
        return self._run(checked) if not outputs else self._run_into(checked, outputs)

    def observe(self, inputs: Sequence[Any], visit: Visit) -> list[Any]:
        """Run over arrays with somebody who runs the steps one by one, such as ``dovetail.runtime.observe`` gives."""
        return self._run(self._engine.check_inputs(inputs), visit)

    def _run(self, inputs: Sequence[Any], visit: Visit | None = None) -> list[Any]:
        run = self._find_run(inputs)
        arrays = inputs if not self._engine.has_formatted_io else self._pack_inputs(inputs)
        return run.outputs.finish(run.run(arrays, run.outputs.make(arrays), visit))

    def _find_run(self, inputs: Sequence[Any]) -> BoundRun:
        if self._engine.has_objects:
            return self._instance.find(tuple([shape_of(value) for value in inputs]), inputs)
        return self._instance.find(tuple([array.shape for array in inputs]), inputs)

    def _pack_inputs(self, inputs: Sequence[Any]) -> list[Any]:
        formats = [TensorFormat[tensor.format] for tensor in self._engine.manifest.inputs]
        return [a if f is TensorFormat.LINEAR else pack(a, f) for a, f in zip(inputs, formats, strict=True)]

    def _run_into(self, inputs: Sequence[Any], outputs: Mapping[str, Any]) -> list[Any]:
        run, program = self._find_run(inputs), self._instance.program
        allowed = self._engine.device_outputs[self._profile]
        given = import_outputs(outputs, self._engine.manifest, program, allowed, self._engine.providers)
        made = run.outputs.make(inputs)
        targets = [given.get(index, array) for index, array in zip(program.outputs, made, strict=True)]
        results = run.run(inputs, targets)
        return run.outputs.finish(results, given=[index in given for index in program.outputs])


IExecutionContext = ExecutionContext
"""The contract's name."""


def _no_address(kind: str, name: str, fix: str) -> InputError:
    return InputError("no address is set", where=f"{kind} '{name}'", fix=fix)


def _memory_bytes(tensor: TensorRecord, physical: Sequence[int]) -> int:
    """Bytes of memory that a tensor takes outside, where four-bit elements take half a byte."""
    return size_bytes(physical, data_type_from_numpy(tensor.dtype))


def _reallocate(allocator: IOutputAllocator, name: str, memory: int, size: int, stream: int) -> int:
    address = int(allocator.reallocate_output_async(name, memory, size, 256, stream) or 0)
    if not address and size:
        raise InputError(f"the output allocator gave no memory for {size} bytes", where=f"output '{name}'")
    return address


def _destroy_instances(instances: dict[int, ProgramInstance], devices: ContextDevices) -> None:
    for instance in instances.values():
        instance.forget()
    devices.close()  # work that is under way uses what the instances have
    for instance in instances.values():
        for step in instance.all_plugin_steps():
            step.handle.destroy()
        instance.close()
    instances.clear()
