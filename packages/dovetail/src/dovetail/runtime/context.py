"""An execution context: one caller's state over an engine: shapes, addresses, memory, attached plugins.

A context may be used by one thread at a time. Addresses and arrays that are bound stay the caller's; everything else
belongs to the context and is reused from run to run.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from dovetail._integers import as_address, as_integer, as_integers
from dovetail.allocators import IGpuAllocator, IOutputAllocator
from dovetail.errors import DovetailError, InputError, InternalError, UsageError
from dovetail.formats import pack, packed_shape, size_bytes
from dovetail.loggers import ErrorCode, ErrorRecorder, IErrorRecorder
from dovetail.plan.manifest import TensorRecord
from dovetail.plugin.interfaces import IPluginResourceContext
from dovetail.provider.devices import Stream
from dovetail.runtime.arrays import PackedMemory, array_at
from dovetail.runtime.bindings import Bindings
from dovetail.runtime.device_io import import_outputs
from dovetail.runtime.devices import ContextDevices
from dovetail.runtime.objects import refuse_address, shape_of
from dovetail.runtime.profiler import IProfiler, run_profiled
from dovetail.runtime.profiles import check_profile, check_values, find_profile, known_dims
from dovetail.runtime.results import Results, Room, require_array
from dovetail.runtime.runner import ProgramRunner
from dovetail.runtime.steps import Array, check_same_size
from dovetail.types import Dims, TensorFormat, data_type_from_numpy

if TYPE_CHECKING:
    from dovetail.runtime.engine import Engine
    from dovetail.runtime.template import ProgramTemplate

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


class ExecutionContext:
    """Runs an engine: bind by address and ``execute_async_v3``, or pass arrays with ``run``."""

    def __init__(self, engine: Engine, streams: Mapping[str, Stream] | None = None) -> None:
        self._engine = engine
        self.name = ""
        self.profiler: IProfiler | None = None
        self._resources = _ResourceContext(engine.allocator)
        self._runners: dict[int, ProgramRunner] = {}
        self._devices = ContextDevices(engine.providers, capture_graphs=engine.capture_graphs, streams=streams)
        self._shapes: dict[str, tuple[int, ...]] = engine.static_input_shapes()
        self._addresses: dict[str, int] = {}
        self._allocators: dict[str, IOutputAllocator] = {}
        self._has_choice = engine.num_optimization_profiles > 1
        """Whether each call has to look for its profile, which elements of inputs may decide as well as shapes."""
        self._last_shapes: tuple[Any, ...] | None = None
        self._rooms: list[Room] | None = None
        """What memory outputs get in runs with arrays of the last shapes; None when that is to be looked at."""
        self._moved: set[str] = set()
        """Tensors with another address than in the last run."""
        self._is_stale = True
        """Whether more than addresses may have changed since the last run by address."""
        self._has_deliveries = True
        """Whether outputs need anything after a run by address."""
        self._profile = 0
        self._runner = self._use_profile(0)
        self._bindings = Bindings(engine.manifest, self._runner.program)
        self._results = Results(engine, 0, self._runner)
        self._shape_of: Callable[[Any], Any] = shape_of if engine.has_objects else attrgetter("shape")
        self._finalizer = weakref.finalize(self, _destroy_runners, self._runners, self._devices)

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
    def active_optimization_profile(self) -> int:
        """The profile in use."""
        return self._profile

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int = 0) -> bool:
        """Choose the profile; shapes must then be set again if they do not fit it."""
        count = self._engine.num_optimization_profiles
        if not 0 <= as_integer(profile_index, "profile") < count:
            raise UsageError("no such profile", expected=f"0 to {count - 1}", got=profile_index)
        if profile_index != self._profile:
            self._runner = self._use_profile(profile_index)
            self._bindings = Bindings(self._engine.manifest, self._runner.program)
            self._results = Results(self._engine, profile_index, self._runner)
            self._profile = profile_index
            self._is_stale = True
            self._last_shapes = None
            self._runner.is_dirty = True
        return True

    def replace_constant(self, profile: int, blob: str, arrays: Mapping[str, Any]) -> None:
        """Use a new array for a constant, by the memory it lies in, from the next run on."""
        if profile in self._runners:
            self._runners[profile].replace_constant(blob, arrays)

    def renew_steps(self, profile: int, template: ProgramTemplate) -> None:
        """Use the kernels that the providers made anew, from the next run on."""
        if profile in self._runners:
            runner = self._runners[profile]
            runner.use_steps(template.renew_steps(runner.steps, self._devices))

    def close(self) -> None:
        """Destroy the attached plugins now; the context cannot run afterwards."""
        self._finalizer()
        self._is_stale, self._last_shapes = True, None  # so that the next run looks whether it may

    def _require_open(self) -> None:
        if not self._finalizer.alive:
            raise UsageError("the context is closed", fix="create another: engine.create_execution_context()")

    def __enter__(self) -> ExecutionContext:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _use_profile(self, index: int) -> ProgramRunner:
        if index not in self._runners:
            self._engine.require_weights()
            runner = self._engine.make_runner(index, self._resources, self._devices)
            self._runners[index] = runner
        return self._runners[index]

    # shapes

    def set_input_shape(self, name: str, shape: Iterable[int]) -> bool:
        """Say what shape an input will have; checked against the engine and the profile at once."""
        tensor = self._engine.input_tensor(name)
        refuse_address(tensor)
        dims = as_integers(shape, f"input '{name}'")
        check_profile(self._engine.manifest, self._profile, tensor, dims)
        if self._shapes.get(name) != dims:
            self._shapes[name] = dims
            self._is_stale = True
        return True

    def get_tensor_shape(self, name: str) -> Dims:
        """The shape of a tensor for the inputs set so far; -1 where that is not known."""
        if name in self._shapes:
            return Dims(self._shapes[name])
        tensor = self._engine.tensor(name)
        if self.infer_shapes():
            return Dims(dim if isinstance(dim, int) else -1 for dim in known_dims(tensor))
        index = self._engine.value_index(self._profile, name)
        shape = self._runner.shapes[index]
        if shape is not None:
            return Dims(shape)
        return Dims(-1 if dim is None else self._runner.evaluate_dim(dim) for dim in known_dims(tensor))

    def infer_shapes(self) -> list[str]:
        """Work shapes out; the names of inputs whose shape, or contents if it is a shape input, is still missing."""
        missing = [t.name for t in self._engine.manifest.inputs if t.type or t.name not in self._shapes]
        if not missing:
            missing = [t.name for t in self._engine.manifest.inputs if t.is_shape and t.name not in self._addresses]
        if not missing:
            self._bind_inputs()
            self._runner.resolve(self._input_shapes())
            self._last_shapes = None  # a run with arrays has shapes of its own
        return missing

    @property
    def all_binding_shapes_specified(self) -> bool:
        """Whether every input shape is set."""
        return all(tensor.name in self._shapes for tensor in self._engine.manifest.inputs)

    def _input_shapes(self) -> list[tuple[int, ...]]:
        return [self._shapes[tensor.name] for tensor in self._engine.manifest.inputs]

    # addresses

    def set_tensor_address(self, name: str, memory: int) -> bool:
        """Bind an input or output to memory of the caller's.

        Where nothing but addresses changes between two runs, the second takes up only what moved.
        """
        if name not in self._addresses:
            refuse_address(self._engine.tensor(name))
        address = memory if memory.__class__ is int and memory >= 0 else as_address(memory, f"tensor '{name}'")
        if self._addresses.get(name) != address:
            self._addresses[name] = address
            self._moved.add(name)
        return True

    def set_tensor_addresses(self, addresses: Sequence[int]) -> bool:
        """Bind all inputs and outputs in one call: an address for each tensor, in the engine's order."""
        names, known, note_move = self._engine.tensor_names, self._addresses, self._moved.add
        if len(addresses) != len(names):
            raise InputError(
                "wrong number of bindings", expected=f"{len(names)} ({', '.join(names)})", got=len(addresses)
            )
        is_first = len(known) < len(names)
        for name, address in zip(names, addresses):  # noqa: B905 - counted above
            if is_first or address.__class__ is not int or address < 0:
                self.set_tensor_address(name, address)
            elif known[name] != address:
                known[name] = address
                note_move(name)
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
        self._is_stale = True
        return True

    def get_output_allocator(self, name: str) -> IOutputAllocator | None:
        """The allocator set for an output."""
        return self._allocators.get(name)

    def get_max_output_size(self, name: str) -> int:
        """Bytes that the output can take at most for the shapes set now; -1 when there is no bound."""
        tensor = self._engine.output_tensor(name)
        return -1 if self.infer_shapes() else self._bound_bytes(tensor)

    def _bound_bytes(self, tensor: TensorRecord) -> int:
        dims = tensor.dims if tensor.max_dims is None else tensor.max_dims
        if dims is None or any(dim is None for dim in dims):
            return -1
        shape = [max(self._runner.evaluate_dim(dim), 0) for dim in dims]
        return _memory_bytes(tensor, packed_shape(shape, TensorFormat[tensor.format]))

    # running by address

    def execute_async_v3(self, stream_handle: int = 0) -> bool:
        """Run with what is bound; on a CPU the work is done when this returns."""
        runner = self._runner
        if stream_handle != runner.stream:
            self._set_stream(int(stream_handle))
        if self._is_stale:
            self._rebind()
        elif self._moved or runner.has_element_symbols:
            self._follow()
        if self._bindings.packed_inputs:
            for binding in self._bindings.packed_inputs:
                binding.unpack()
        self._run()
        if self._has_deliveries:
            self._deliver()
        return True

    def bind_run(self) -> Callable[[], None] | None:
        """The last run by address as a function, for hosts that run the same buffers again and know that they are.

        It does what ``execute_async_v3`` would, without a look at what may have changed: it is to be dropped before
        anything of the context is touched. None where there is more to a run than its steps.
        """
        runner = self._runner
        is_settled = not (self._is_stale or self._moved or runner.is_dirty or runner.has_moved)
        is_more = runner.has_element_symbols or self._bindings.packed_inputs or self._has_deliveries
        if not is_settled or is_more or self.profiler is not None:
            return None
        step, fail = runner.bind_run(), self._fail

        def run() -> None:
            try:
                step()
            except BaseException as error:  # noqa: BLE001 - it is raised again
                fail(error)

        return run

    def execute_v2(self, bindings: Sequence[int]) -> bool:
        """Run with one address for each tensor, in the engine's order."""
        self.set_tensor_addresses(bindings)
        return self.execute_async_v3(0)

    def _rebind(self) -> None:
        self._require_open()
        for tensor in (*self._engine.manifest.inputs, *self._engine.manifest.outputs):
            refuse_address(tensor)
        missing = [t.name for t in self._engine.manifest.inputs if t.name not in self._shapes]
        if missing:
            raise InputError("input shapes are not set", where=", ".join(missing), fix="call set_input_shape for each")
        self._check_profile()
        self._bind_inputs(required=True)
        self._resolve(self._input_shapes())
        self._bind_outputs()
        self._runner.is_dirty = True
        self._moved.clear()
        self._is_stale = False
        self._last_shapes = None

    def _follow(self) -> None:
        """Bind what has another address than in the last run, or shapes by other contents; all else is as it was."""
        bindings, moved, runner = self._bindings, self._moved, self._runner
        self._is_stale = True  # until all is bound: after an error the next run begins at the start
        for name in moved:
            binding = bindings.movable.get(name)
            if binding is None or name in self._allocators:
                self._rebind()
                return
            if binding.is_direct:
                address = self._addresses[name]
                runner.move(binding.index, binding.move(address), address)
            elif binding.shape is not None:
                runner.bind(binding.index, binding.move(self._addresses[name]))
        for binding in bindings.aliased:
            if binding.shape is not None and binding.name not in self._allocators:
                self._check_alias(binding.tensor, self._addresses[binding.name])
        if runner.has_element_symbols and self._resolve(self._input_shapes()):
            self._bind_outputs()
        if moved:
            runner.has_moved = True
            moved.clear()
        self._is_stale = False

    def _resolve(self, shapes: Sequence[tuple[int, ...] | None]) -> bool:
        """Find shapes and places when the inputs are bound; True when anything changed."""
        if self._runner.has_element_symbols:
            arrays = [self._runner.frame[index] for index in self._runner.program.inputs]
            check_values(self._engine.manifest, self._profile, arrays)
        return self._runner.resolve(shapes)

    def _check_profile(self) -> None:
        for tensor in self._engine.manifest.inputs:
            check_profile(self._engine.manifest, self._profile, tensor, self._shapes[tensor.name])

    def _bind_inputs(self, *, required: bool = False) -> None:
        for binding in self._bindings.inputs:
            address, shape = self._addresses.get(binding.name), self._shapes[binding.name]
            if address is None:
                if required:
                    raise InputError(
                        "no address is set", where=f"input '{binding.name}'", fix="call set_tensor_address"
                    )
                self._runner.bind(binding.index, _Shaped(shape))  # type: ignore[arg-type]
                continue
            physical = tuple(packed_shape(shape, TensorFormat[binding.tensor.format]))
            self._runner.bind(binding.index, binding.bind(address, physical))

    def _bind_outputs(self) -> None:
        runner, outputs = self._runner, self._bindings.outputs
        for binding in outputs:
            shape = runner.physical_shape(binding.index)
            if shape is None:
                binding.shape = None
            else:
                runner.bind(binding.index, binding.bind(self._output_address(binding.tensor, shape), shape))
        # Where a dimension is 0, a step may leave an array of its own in place of the memory that it was given.
        is_more = bool(self._allocators) or self._runner.has_empty
        self._has_deliveries = is_more or any(b.shape is None or b.is_packed for b in outputs)

    def _output_address(self, tensor: TensorRecord, shape: tuple[int, ...]) -> int:
        allocator = self._allocators.get(tensor.name)
        if allocator is not None:
            size = _memory_bytes(tensor, shape)
            return _reallocate(allocator, tensor.name, self._addresses.get(tensor.name, 0), size, self._runner.stream)
        address = self._addresses.get(tensor.name)
        if address is None:
            fix = "call set_tensor_address or set_output_allocator"
            raise InputError("no address is set", where=f"output '{tensor.name}'", fix=fix)
        self._check_alias(tensor, address)
        self._check_alias_size(tensor, shape)
        return address

    def _check_alias(self, tensor: TensorRecord, address: int) -> None:
        if tensor.alias is not None and self._addresses.get(tensor.alias) != address:
            raise InputError(
                f"it shares memory with input '{tensor.alias}'",
                where=f"output '{tensor.name}'",
                expected="the same address for both",
                fix=f"call set_tensor_address('{tensor.name}', ...) with the address of '{tensor.alias}'",
            )

    def _check_alias_size(self, tensor: TensorRecord, shape: tuple[int, ...]) -> None:
        """An output that lies in the memory of an input fills it exactly; the caller has sized it for the input."""
        if tensor.alias is not None:
            names = [source.name for source in self._engine.manifest.inputs]
            source = self._runner.frame[self._runner.program.inputs[names.index(tensor.alias)]]
            check_same_size(source, shape, np.dtype(tensor.dtype))

    def _set_stream(self, stream: int) -> None:
        if stream != self._runner.stream:
            self._runner.set_stream(stream)

    def _run(self) -> None:
        try:
            if self.profiler is None:
                self._runner.run()
            else:
                run_profiled(self._runner, self.profiler)
        except DovetailError as error:
            self._report(error)
            raise

    def _fail(self, error: BaseException) -> NoReturn:
        try:
            self._runner.fail(error)
        except DovetailError as told:
            self._report(told)
            raise

    def _report(self, error: Exception) -> None:
        self.error_recorder.report_error(ErrorCode.FAILED_EXECUTION, str(error).splitlines()[0])

    def _deliver(self) -> None:
        """Hand over outputs whose shape only the run told, and tell allocators the shapes of all."""
        for binding in self._bindings.outputs:
            array = self._runner.frame[binding.index]
            allocator = self._allocators.get(binding.name)
            if binding.shape is None or array.shape != binding.shape:
                self._copy_out(binding.tensor, array, allocator)
            else:
                binding.pack()
            if allocator is not None:
                shape = self._runner.shapes[binding.index]
                allocator.notify_shape(binding.name, Dims(array.shape if shape is None else shape))

    def _copy_out(self, tensor: TensorRecord, array: Array, allocator: IOutputAllocator | None) -> None:
        address = self._addresses.get(tensor.name, 0)
        size = _memory_bytes(tensor, require_array(array, tensor).shape)
        if allocator is not None:
            address = _reallocate(allocator, tensor.name, address, size, self._runner.stream)
            self._addresses[tensor.name] = address
        if not address:
            fix = "call set_output_allocator: the shape depends on the data"
            raise InputError("no memory is set", where=f"output '{tensor.name}'", fix=fix)
        if allocator is None:
            self._check_bound(tensor, size)
        self._check_told(tensor, array.shape)
        if data_type_from_numpy(array.dtype).bits < 8:
            PackedMemory(address, array.shape, array.dtype).write(array)
        else:
            np.copyto(array_at(address, array.shape, array.dtype), array)

    def _check_bound(self, tensor: TensorRecord, size: int) -> None:
        """Memory that the caller bound beforehand is as large as the bound says, if there is one."""
        room = self._bound_bytes(tensor)
        if size > room:
            raise InputError(
                "the result has no bound, so no memory is large enough" if room < 0 else "the result is over its bound",
                where=f"output '{tensor.name}'",
                expected=f"at most {max(room, 0)} bytes",
                got=size,
                fix="call set_output_allocator: the shape depends on the data",
            )

    def _check_told(self, tensor: TensorRecord, shape: tuple[int, ...]) -> None:
        """Dimensions that the caller was told before the run are those of the result, unless that has no elements."""
        if tensor.format != "LINEAR" or tensor.dims is None or 0 in shape:
            return
        told = [-1 if dim is None else self._runner.evaluate_dim(dim) for dim in tensor.dims]
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
        # Most calls are like the one before. This is paid for in each, after others have had the caches: one loop.
        shapes, inputs = self._last_shapes, []
        if shapes is None or len(arrays) + len(named) != len(shapes) or self._has_choice:
            return self._call_anew(arrays, named)
        given = arrays or map(named.get, self._engine.input_names)
        for value, dtype, shape in zip(given, self._engine.usual_dtypes, shapes):  # noqa: B905 - counted above
            is_plain = value.__class__ is np.ndarray and value.dtype is dtype and value.shape == shape
            if not (is_plain and value.flags.carray):
                return self._call_anew(arrays, named)
            inputs.append(value)
        if len(inputs) != len(shapes):
            return self._call_anew(arrays, named)
        return self._run_known(inputs, shapes)

    def _call_anew(self, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> list[Any]:
        inputs = self._engine.gather_inputs(arrays, named)
        if self._has_choice:
            self.set_optimization_profile_async(find_profile(self._engine.manifest, inputs))
        return self.run_checked(inputs)

    def run(self, inputs: Sequence[Any], outputs: Mapping[str, Any] | None = None) -> list[Any]:
        """Run over arrays in the engine's input order; the returned arrays belong to the caller.

        A sequence is a list of arrays, an empty optional is None, and strings are an array of ``str``. Outputs that a
        device makes can be written to arrays of that device, by name; these are then what is returned for them.
        """
        checked = self._engine.check_inputs(inputs)
        return self.run_checked(checked) if not outputs else self._run_into(checked, outputs)

    def _run_into(self, inputs: Sequence[Any], outputs: Mapping[str, Any]) -> list[Any]:
        runner, manifest = self._runner, self._engine.manifest
        allowed = self._engine.device_outputs[self._profile]
        given = import_outputs(outputs, manifest, runner.program, allowed, self._engine.providers)
        if runner.device_io is None:
            return self.run_checked(inputs)
        runner.device_io.outputs = given
        try:
            results = self.run_checked(inputs)
        finally:
            runner.device_io.outputs = {}
        return [given.get(index, result) for index, result in zip(runner.program.outputs, results, strict=True)]

    def run_checked(self, inputs: Sequence[Any]) -> list[Any]:
        """The same over arrays that ``Engine.check_inputs`` gave."""
        shapes = tuple(map(self._shape_of, inputs))
        if shapes == self._last_shapes:
            return self._run_known(inputs, shapes)
        return self._run_first(inputs, shapes, is_new=True)

    def _run_known(self, inputs: Sequence[Any], shapes: tuple[Any, ...]) -> list[Any]:
        """Over shapes that are those of the last run, in the shortest way that there is for the program."""
        make = self._runner.make_whole
        if make is None or self.profiler is not None:
            rooms = self._rooms
            return self._run_first(inputs, shapes, is_new=False) if rooms is None else self._run_again(rooms, inputs)
        try:
            return make(inputs)
        except Exception as error:  # noqa: BLE001 - it is raised again
            self._fail_whole(error)

    def _run_again(self, rooms: Sequence[Room], inputs: Sequence[Array]) -> list[Any]:
        """The short way once a run over these shapes has shown what the outputs are."""
        runner = self._runner
        frame = runner.frame
        for index, array in zip(runner.program.inputs, inputs, strict=True):
            if frame[index] is not array:
                runner.bind(index, array)
        self._results.bind_rooms(rooms)
        self._run()
        return self._results.collect_rooms(rooms)

    def _run_first(self, inputs: Sequence[Any], shapes: tuple[Any, ...], *, is_new: bool) -> list[Any]:
        """The general way, which looks at everything."""
        runner, manifest = self._runner, self._engine.manifest
        arrays: Sequence[Array] = inputs
        if self._engine.has_formatted_io:
            arrays = [_pack_input(array, tensor) for array, tensor in zip(inputs, manifest.inputs, strict=True)]
        if is_new:
            self._rooms = None
            self._require_open()
            for tensor, shape in zip(manifest.inputs, shapes, strict=True):
                if shape is not None:
                    check_profile(manifest, self._profile, tensor, shape)
            self._is_stale = True
            self._last_shapes = None
        frame = runner.frame
        for index, array in zip(runner.program.inputs, arrays, strict=True):
            if frame[index] is not array:
                runner.bind(index, array)
        if is_new or runner.has_element_symbols:
            self._resolve(shapes)
            self._last_shapes = shapes
        self._results.bind(arrays)
        self._run()
        results = self._results.collect()
        if is_new:
            self._rooms = self._results.find_rooms(results)
        return results

    def _fail_whole(self, error: Exception) -> NoReturn:
        whole = self._runner.whole
        if isinstance(error, DovetailError) or whole is None:
            self._report(error)
            raise error
        told = whole.describe(error)
        self._report(told)
        raise told from error


IExecutionContext = ExecutionContext
"""The contract's name."""


class _Shaped:
    """Stands in for an input that has a shape but no memory yet, while shapes are inferred."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape


def _memory_bytes(tensor: TensorRecord, physical: Sequence[int]) -> int:
    """Bytes of memory that a tensor takes outside, where four-bit elements take half a byte."""
    return size_bytes(physical, data_type_from_numpy(tensor.dtype))


def _reallocate(allocator: IOutputAllocator, name: str, memory: int, size: int, stream: int) -> int:
    address = int(allocator.reallocate_output_async(name, memory, size, 256, stream) or 0)
    if not address and size:
        raise InputError(f"the output allocator gave no memory for {size} bytes", where=f"output '{name}'")
    return address


def _pack_input(array: Array, tensor: TensorRecord) -> Array:
    return array if tensor.format == "LINEAR" else pack(array, TensorFormat[tensor.format])


def _destroy_runners(runners: dict[int, ProgramRunner], devices: ContextDevices) -> None:
    for runner in runners.values():
        runner.forget_captures()
    devices.close()  # work that is under way uses what the runners have
    for runner in runners.values():
        for step in runner.all_plugin_steps():
            step.handle.destroy()
        runner.close()
    runners.clear()
