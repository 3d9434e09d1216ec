"""Execution contexts: shapes, addresses and runs by address, with False for what fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import dovetail
from dovetail_tensorrt.cudart.graphs import defer, is_capturing
from dovetail_tensorrt.trt.answers import DeprecatedContext, Reporter, call_user
from dovetail_tensorrt.trt.enums import ExecutionContextAllocationStrategy
from dovetail_tensorrt.trt.execution.allocators import GuardedOutputAllocator
from dovetail_tensorrt.trt.execution.captures import keep_bindings
from dovetail_tensorrt.trt.execution.debugging import DebugReceiver, IDebugListener, debug_name, is_debug_name
from dovetail_tensorrt.trt.execution.layouts import find_strides
from dovetail_tensorrt.trt.execution.settings import IRuntimeConfig

if TYPE_CHECKING:
    from dovetail_tensorrt.trt.execution.engine import ICudaEngine

__all__ = ["IExecutionContext"]

T = TypeVar("T")
F = TypeVar("F")


class IExecutionContext(DeprecatedContext):
    """Runs an engine; made by ``ICudaEngine.create_execution_context``."""

    __slots__ = (
        "_emits_profile",
        "_engine",
        "_event",
        "_listener",
        "_memory",
        "_receivers",
        "_relay",
        "_reporter",
        "_settings",
        "context",
        "debug_sync",
        "nvtx_verbosity",
        "persistent_cache_limit",
        "temporary_allocator",
        "unfused_tensors_debug_state",
    )

    def __init__(
        self, engine: ICudaEngine, context: dovetail.ExecutionContext, settings: IRuntimeConfig, reporter: Reporter
    ) -> None:
        self.context = context
        """The context itself, with all that Dovetail offers."""
        self._engine = engine
        self._settings = settings
        self._reporter = reporter
        self._relay: _ProfilerRelay | None = None
        self._emits_profile = True
        self._listener: IDebugListener | None = None
        self._receivers = _receive_debug(engine.engine, context)
        self._memory = 0
        self._event = 0
        self.debug_sync = False
        self.persistent_cache_limit = 0
        self.nvtx_verbosity = engine.profiling_verbosity
        self.unfused_tensors_debug_state = False
        self.temporary_allocator: dovetail.IGpuAllocator | None = None

    def __del__(self) -> None:
        """Nothing: the contract has the name."""

    def _ask(self, call: str, action: Callable[[], T], failure: F) -> T | F:
        return self._reporter.attempt(f"IExecutionContext.{call}", action, failure)

    # what it is

    @property
    def engine(self) -> ICudaEngine:
        """The engine that it runs."""
        return self._engine

    @property
    def name(self) -> str:
        """A name for messages."""
        return self.context.name

    @name.setter
    def name(self, value: str) -> None:
        self.context.name = str(value)

    @property
    def error_recorder(self) -> dovetail.IErrorRecorder:
        """Where errors of its plugins and runs are recorded."""
        return self.context.error_recorder

    @error_recorder.setter
    def error_recorder(self, recorder: dovetail.IErrorRecorder) -> None:
        self.context.error_recorder = recorder

    def get_runtime_config(self) -> IRuntimeConfig:
        """The settings that it was made with."""
        return self._settings

    # profiles and shapes

    @property
    def active_optimization_profile(self) -> int:
        """The profile in use."""
        return self.context.active_optimization_profile

    def set_optimization_profile_async(self, profile_index: int, stream_handle: Any) -> bool:
        """Choose the profile; False when there is none of the number."""

        def choose() -> bool:
            return self.context.set_optimization_profile_async(int(profile_index), int(stream_handle))

        return self._ask("set_optimization_profile_async", choose, failure=False)

    @property
    def all_binding_shapes_specified(self) -> bool:
        """Whether every input shape is set."""
        return self.context.all_binding_shapes_specified

    @property
    def all_shape_inputs_specified(self) -> bool:
        """Whether the contents of every input that decides shapes are bound; of version 10."""
        engine = self._engine
        inputs = [name for name in engine if engine.get_tensor_mode(name) is dovetail.TensorIOMode.INPUT]
        return all(self.get_tensor_address(name) for name in inputs if engine.is_shape_inference_io(name))

    def set_input_shape(self, name: str, shape: Iterable[int]) -> bool:
        """Say what shape an input will have; False when it does not fit the engine and the profile."""
        return self._ask("set_input_shape", lambda: self.context.set_input_shape(name, shape), failure=False)

    def get_tensor_shape(self, name: str) -> dovetail.Dims:
        """The shape of a tensor for the inputs set so far; -1 where that is not known."""
        return self._ask("get_tensor_shape", lambda: self.context.get_tensor_shape(name), dovetail.Dims.invalid())

    def get_tensor_strides(self, name: str) -> dovetail.Dims:
        """The distance of neighbours in each dimension; invalid while a size is not known."""

        def find() -> dovetail.Dims:
            shape = self.context.get_tensor_shape(name)
            if any(size < 0 for size in shape):
                return dovetail.Dims.invalid()
            return find_strides(tuple(shape), self._engine.engine.get_tensor_format(name))

        return self._ask("get_tensor_strides", find, dovetail.Dims.invalid())

    def infer_shapes(self) -> list[str]:
        """The names of inputs whose shape or contents are still missing."""
        return self._ask("infer_shapes", self.context.infer_shapes, [])

    # addresses

    def set_tensor_address(self, name: str, memory: Any) -> bool:
        """Bind an input or output to memory of the caller's."""
        return self._ask(
            "set_tensor_address", lambda: self.context.set_tensor_address(name, int(memory)), failure=False
        )

    def get_tensor_address(self, name: str) -> int:
        """What is bound; 0 when nothing is."""
        return self._ask("get_tensor_address", lambda: self.context.get_tensor_address(name), 0)

    def set_output_allocator(self, name: str, output_allocator: dovetail.IOutputAllocator | None) -> bool:
        """Let the caller provide memory for an output once its size is known."""
        guarded = None if output_allocator is None else GuardedOutputAllocator(output_allocator)
        return self._ask(
            "set_output_allocator", lambda: self.context.set_output_allocator(name, guarded), failure=False
        )

    def get_output_allocator(self, name: str) -> dovetail.IOutputAllocator | None:
        """The allocator set for an output."""
        found = self.context.get_output_allocator(name)
        return found.given if isinstance(found, GuardedOutputAllocator) else found

    def get_max_output_size(self, name: str) -> int:
        """Bytes that an output can take at most; -1 when there is no bound."""
        return self._ask("get_max_output_size", lambda: self.context.get_max_output_size(name), -1)

    def set_input_consumed_event(self, event: Any) -> bool:
        """Name an event for the end of reading inputs; kept, as a run is over when it returns."""
        self._event = int(event)
        return True

    def get_input_consumed_event(self) -> int:
        """The event that was named; 0 for none."""
        return self._event

    # memory

    @property
    def device_memory(self) -> int:
        """The memory that the caller provided; 0 for the context's own."""
        return self._memory

    @device_memory.setter
    def device_memory(self, memory: Any) -> None:
        self.set_device_memory(memory, self._engine.device_memory_size_v2)

    def set_device_memory(self, memory: Any, size: int) -> bool:
        """Take memory of the caller's; it is kept and not used, as contexts have their own.

        False when it would be too small, or the context was not made with USER_MANAGED.
        """
        needed = self._engine.get_device_memory_size_for_profile_v2(self.active_optimization_profile)
        strategy = self._settings.get_execution_context_allocation_strategy()
        if strategy is not ExecutionContextAllocationStrategy.USER_MANAGED:
            self._reporter.refuse("IExecutionContext.set_device_memory", f"the strategy is {strategy.name}")
            return False
        if size < needed:
            self._reporter.refuse("IExecutionContext.set_device_memory", f"{size} bytes are too few, {needed} needed")
            return False
        self._memory = int(memory)
        return True

    def update_device_memory_size_for_shapes(self) -> int:
        """Bytes that the shapes set now need; 0 while they are not all set."""
        if self.context.infer_shapes():
            self._reporter.refuse("IExecutionContext.update_device_memory_size_for_shapes", "input shapes are missing")
            return 0
        return self._engine.get_device_memory_size_for_profile_v2(self.active_optimization_profile)

    def set_aux_streams(self, aux_streams: Sequence[Any]) -> None:
        """Taken: contexts have their own streams."""
        _ = [int(stream) for stream in aux_streams]

    def set_communicator(self, communicator: Any) -> bool:
        """False: an engine runs on one device."""
        self._reporter.refuse("IExecutionContext.set_communicator", "an engine runs on one device")
        return False

    # running

    def execute_async_v3(self, stream_handle: Any) -> bool:
        """Run with what is bound; False when that fails. While a graph is captured, its launches run."""
        stream = int(stream_handle)
        if is_capturing():
            return defer(keep_bindings(self.context, list(self._engine), lambda: self._run(stream)))
        return self._run(stream)

    def _run(self, stream: int) -> bool:
        def run() -> bool:
            self.context.execute_async_v3(stream)
            return self._tell_debug(stream)

        return self._ask("execute_async_v3", run, failure=False)

    def execute_v2(self, bindings: Sequence[Any]) -> bool:
        """Run with one address for each tensor, in the engine's order; False when that fails.

        An output that has an allocator stays where this put it last.
        """
        names = list(self._engine)
        if len(bindings) != len(names):
            text = f"there are {len(bindings)} bindings for {len(names)} tensors"
            self._reporter.refuse("IExecutionContext.execute_v2", text)
            return False
        given = dict(zip(names, bindings, strict=True))
        bound = {name: memory for name, memory in given.items() if not self._has_allocated(name)}
        if not all(self.set_tensor_address(name, memory) for name, memory in bound.items()):
            return False
        return self.execute_async_v3(0)

    def _has_allocated(self, name: str) -> bool:
        return self.context.get_output_allocator(name) is not None and self.get_tensor_address(name) != 0

    # profiling

    @property
    def profiler(self) -> dovetail.IProfiler | None:
        """Told the time of every layer."""
        return None if self._relay is None else self._relay.given

    @profiler.setter
    def profiler(self, profiler: dovetail.IProfiler | None) -> None:
        self._relay = None if profiler is None else _ProfilerRelay(profiler)
        if self._relay is not None:
            self._relay.emits = self._emits_profile
        self.context.profiler = self._relay

    @property
    def enqueue_emits_profile(self) -> bool:
        """Whether times are told with each run, or when ``report_to_profiler`` is called."""
        return self._emits_profile

    @enqueue_emits_profile.setter
    def enqueue_emits_profile(self, value: bool) -> None:
        self._emits_profile = bool(value)
        if self._relay is not None:
            self._relay.emits = self._emits_profile

    def report_to_profiler(self) -> bool:
        """Tell the times of the last run; False when nobody is to be told."""
        return self._relay is not None and self._relay.tell()

    # debug tensors

    def set_debug_listener(self, listener: IDebugListener | None) -> bool:
        """Who is told of debug tensors."""
        self._listener = listener
        return True

    def get_debug_listener(self) -> IDebugListener | None:
        """Who is told of debug tensors."""
        return self._listener

    def set_tensor_debug_state(self, name: str, flag: bool) -> bool:
        """Switch the telling of a tensor on or off; False when it was not marked for debugging."""
        receiver = self._receivers.get(name)
        if receiver is None:
            self._reporter.refuse("IExecutionContext.set_tensor_debug_state", f"'{name}' is no debug tensor")
            return False
        receiver.is_on = bool(flag)
        return True

    def get_debug_state(self, name: str) -> bool:
        """Whether a tensor is told of."""
        receiver = self._receivers.get(name)
        return receiver is not None and receiver.is_on

    def set_all_tensors_debug_state(self, flag: bool) -> bool:
        """Switch the telling of all debug tensors on or off."""
        for receiver in self._receivers.values():
            receiver.is_on = bool(flag)
        return True

    def _tell_debug(self, stream: int) -> bool:
        if self._listener is None:
            return True
        told = [receiver.tell(self._listener, stream) for receiver in self._receivers.values() if receiver.is_on]
        return all(told)


def _receive_debug(engine: dovetail.Engine, context: dovetail.ExecutionContext) -> dict[str, DebugReceiver]:
    """Give each debug tensor memory; they come with every run."""
    prefix = debug_name("")
    receivers = {}
    for name in engine.tensor_names:
        if is_debug_name(name):
            receiver = DebugReceiver(name.removeprefix(prefix), engine.get_tensor_dtype(name))
            context.set_output_allocator(name, receiver)
            receivers[receiver.name] = receiver
    return receivers


class _ProfilerRelay(dovetail.IProfiler):
    """Passes times on at once, or keeps those of the last run until they are asked for."""

    def __init__(self, profiler: dovetail.IProfiler) -> None:
        super().__init__()
        self.given = profiler
        self.emits = True
        self._times: dict[str, float] = {}

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        if self.emits:
            self._pass_on(layer_name, ms)
        else:
            self._times[layer_name] = ms

    def _pass_on(self, layer_name: str, ms: float) -> None:
        call_user("report_layer_time", lambda: self.given.report_layer_time(layer_name, ms), None)

    def tell(self) -> bool:
        """Pass on what was kept; False when nothing was."""
        times, self._times = self._times, {}
        for name, ms in times.items():
            self._pass_on(name, ms)
        return bool(times)
