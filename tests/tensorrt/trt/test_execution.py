"""Runtimes, engines and contexts: answers, addresses, profiles, debug tensors, profilers and allocators."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from dovetail_tensorrt import trt
from tests.support.trt_objects import KeptMessages, build, relu_network, run

X = np.float32([[-1, 0, 1], [2, -3, 4]])


def test_an_engine_answers_for_its_tensors() -> None:
    logger = KeptMessages()
    engine = build(logger, (-1, 3), [((1, 3), (2, 3), (4, 3)), ((4, 3), (8, 3), (16, 3))])
    assert [engine[i] for i in range(engine.num_io_tensors)] == ["x", "y"]
    assert engine.get_tensor_mode("x") == trt.TensorIOMode.INPUT
    assert engine.get_tensor_dtype("y") == trt.float32
    assert engine.get_tensor_shape("y") == (-1, 3)
    assert engine.get_tensor_format("x") == trt.TensorFormat.LINEAR
    assert engine.get_tensor_format_desc("x").startswith("Row major linear FP32")
    assert engine.get_tensor_location("x") == trt.TensorLocation.DEVICE
    assert engine.get_tensor_bytes_per_component("x") == engine.get_tensor_components_per_element("x") == -1
    assert engine.get_tensor_vectorized_dim("x") == -1
    assert engine.num_optimization_profiles == 2
    assert [tuple(d) for d in engine.get_tensor_profile_shape("x", 1)] == [(4, 3), (8, 3), (16, 3)]
    assert engine.device_memory_size_v2 >= engine.get_device_memory_size_for_profile_v2(0)
    assert engine.get_engine_stat(trt.EngineStat.STRIPPED_WEIGHTS_SIZE) == -1
    assert not engine.is_shape_inference_io("x")
    assert logger.errors == []


def test_an_engine_answers_for_what_is_not_there() -> None:
    logger = KeptMessages()
    engine = build(logger)
    assert engine.get_tensor_name(9) is None
    assert engine.get_tensor_mode("z") == trt.TensorIOMode.NONE
    with pytest.raises(ValueError, match="invalid"):
        len(engine.get_tensor_shape("z"))
    assert engine.get_device_memory_size_for_profile_v2(5) == 0
    assert len(logger.errors) == 4


def test_a_plan_that_is_none_is_refused() -> None:
    logger = KeptMessages()
    runtime = trt.Runtime(logger)
    assert runtime.deserialize_cuda_engine(b"not a plan") is None
    assert runtime.deserialize_cuda_engine(b"") is None
    assert runtime.load_runtime("libnvinfer_lean.so") is None
    assert len(logger.errors) == 3
    assert logger.errors[0].startswith("Runtime.deserialize_cuda_engine: Error Code 6")


def test_shapes_addresses_and_runs() -> None:
    logger = KeptMessages()
    engine = build(logger, (-1, 3), [((1, 3), (2, 3), (4, 3))])
    context = engine.create_execution_context()
    assert context.infer_shapes() == ["x"]
    assert not context.all_binding_shapes_specified
    assert not context.set_input_shape("x", (5, 3))
    assert not context.set_input_shape("z", (1, 3))
    np.testing.assert_array_equal(run(context, X), np.maximum(X, 0))
    assert context.get_tensor_strides("y") == (3, 1)
    assert context.get_tensor_address("x") == X.ctypes.data
    assert context.get_max_output_size("y") == X.nbytes
    assert context.update_device_memory_size_for_shapes() == engine.device_memory_size_v2
    assert not context.execute_v2([1])
    y = np.zeros_like(X)
    assert context.execute_v2([X.ctypes.data, y.ctypes.data])
    np.testing.assert_array_equal(y, np.maximum(X, 0))
    assert not context.set_communicator(0)
    assert len(logger.errors) == 4


def test_a_run_without_addresses_is_false() -> None:
    logger = KeptMessages()
    context = build(logger).create_execution_context()
    assert not context.execute_async_v3(0)
    assert "no address is set" in logger.errors[0]


def test_profiles_are_chosen_by_number() -> None:
    logger = KeptMessages()
    context = build(logger, (-1, 3), [((1, 3), (2, 3), (4, 3)), ((4, 3), (8, 3), (16, 3))]).create_execution_context()
    assert context.set_optimization_profile_async(1, 0)
    assert context.active_optimization_profile == 1
    assert not context.set_input_shape("x", (1, 3))
    assert context.set_input_shape("x", (16, 3))
    assert not context.set_optimization_profile_async(2, 0)


def test_memory_of_the_caller() -> None:
    logger = KeptMessages()
    engine = build(logger)
    assert not engine.create_execution_context().set_device_memory(1, 1 << 20)
    strategy = trt.ExecutionContextAllocationStrategy.USER_MANAGED
    context = engine.create_execution_context(strategy)
    memory = np.zeros(max(engine.device_memory_size_v2, 1), np.uint8)
    assert context.set_device_memory(memory.ctypes.data, memory.nbytes)
    assert context.device_memory == memory.ctypes.data
    assert context.get_runtime_config().get_execution_context_allocation_strategy() == strategy
    np.testing.assert_array_equal(run(context, X), np.maximum(X, 0))


def test_weight_streaming_answers() -> None:
    logger = KeptMessages()
    engine = build(logger)
    assert engine.streamable_weights_size == 0
    engine.weight_streaming_budget_v2 = engine.get_weight_streaming_automatic_budget()
    assert engine.weight_streaming_budget_v2 == engine.weight_streaming_scratch_memory_size == 0
    engine.weight_streaming_budget_v2 = 1000
    assert engine.weight_streaming_budget_v2 == 1000
    assert "a budget of 1000 bytes has no effect" in logger.messages[-1][1]
    engine.weight_streaming_budget_v2 = -3
    assert engine.weight_streaming_budget_v2 == 1000
    assert "-3 bytes are no budget" in logger.errors[-1]


class _Times(trt.IProfiler):
    def __init__(self) -> None:
        trt.IProfiler.__init__(self)
        self.layers: list[str] = []

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        self.layers.append(layer_name)
        if len(self.layers) > 100:
            raise RuntimeError("too many")


def test_times_are_told_at_once_or_when_asked() -> None:
    context = build(KeptMessages()).create_execution_context()
    context.profiler = times = _Times()
    assert context.profiler is times
    run(context, X)
    told = len(times.layers)
    assert told > 0
    context.enqueue_emits_profile = False
    run(context, X)
    assert len(times.layers) == told
    assert context.report_to_profiler()
    assert len(times.layers) == 2 * told
    assert not context.report_to_profiler()


def test_the_inspector_shows_layers() -> None:
    logger = KeptMessages()
    builder, network = relu_network(logger)
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    engine = builder.build_engine_with_config(network, config)
    inspector = engine.create_engine_inspector()
    inspector.execution_context = engine.create_execution_context()
    shown = json.loads(inspector.get_engine_information(trt.LayerInformationFormat.JSON))
    assert shown["Bindings"] == ["x", "y"]
    assert engine.profiling_verbosity == trt.ProfilingVerbosity.DETAILED
    assert inspector.get_layer_information(99, trt.LayerInformationFormat.ONELINE) == ""
    assert len(logger.errors) == 1


class _OutputMemory(trt.IOutputAllocator):
    def __init__(self, fails: bool) -> None:
        trt.IOutputAllocator.__init__(self)
        self.fails = fails
        self.shape: Any = None

    def reallocate_output(self, tensor_name: str, memory: int, size: int, alignment: int) -> int:
        if self.fails:
            raise MemoryError("nothing left")
        self.memory = np.zeros(size + alignment, np.uint8)
        return int(self.memory.ctypes.data)

    def notify_shape(self, tensor_name: str, shape: Any) -> None:
        self.shape = tuple(shape)


@pytest.mark.parametrize("fails", [False, True])
def test_output_allocators(fails: bool, capsys: pytest.CaptureFixture[str]) -> None:
    logger = KeptMessages()
    context = build(logger).create_execution_context()
    allocator = _OutputMemory(fails)
    assert context.set_output_allocator("y", allocator)
    assert context.get_output_allocator("y") is allocator
    context.set_tensor_address("x", X.ctypes.data)
    assert context.execute_async_v3(0) == (not fails)
    if fails:
        assert "[ERROR] Exception thrown from reallocate_output" in capsys.readouterr().err
    else:
        assert allocator.shape == (2, 3)
    assert not context.set_output_allocator("x", allocator)


class _Blocks(trt.IGpuAllocator):
    def __init__(self) -> None:
        trt.IGpuAllocator.__init__(self)
        self.blocks: dict[int, np.ndarray] = {}
        self.count = 0
        self.fails = False

    def allocate(self, size: int, alignment: int, flags: int) -> int:
        if self.fails:
            raise MemoryError("nothing left")
        block = np.zeros(size + alignment, np.uint8)
        address = int(block.ctypes.data) + -int(block.ctypes.data) % alignment
        self.blocks[address] = block
        self.count += 1
        return address

    def deallocate(self, memory: int) -> bool:
        return self.blocks.pop(memory, None) is not None


def test_an_allocator_gives_the_memory_of_contexts(capsys: pytest.CaptureFixture[str]) -> None:
    logger = KeptMessages()
    builder, network = relu_network(logger)
    hidden = network.add_unary(network.get_output(0), trt.UnaryOperation.EXP).get_output(0)
    network.mark_output(network.add_softmax(hidden).get_output(0))
    config = builder.create_builder_config()
    config.providers = ["cpu"]
    plan = builder.build_serialized_network(network, config)
    runtime = trt.Runtime(logger)
    runtime.gpu_allocator = allocator = _Blocks()
    assert runtime.gpu_allocator is allocator
    engine = runtime.deserialize_cuda_engine(plan)
    context = engine.create_execution_context()
    assert context is not None
    assert allocator.count > 0
    allocator.fails = True
    assert engine.create_execution_context() is None
    assert "[ERROR] Exception thrown from allocate" in capsys.readouterr().err


class _BrokenListener(trt.IDebugListener):
    def process_debug_tensor(self, *arguments: Any) -> bool:
        raise RuntimeError("cannot look")


def test_a_listener_that_raises_fails_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    builder, network = relu_network(KeptMessages())
    assert network.mark_debug(network.get_input(0))
    engine = builder.build_engine_with_config(network, builder.create_builder_config())
    context = engine.create_execution_context()
    context.set_debug_listener(_BrokenListener())
    context.set_tensor_debug_state("x", True)
    y = np.zeros_like(X)
    assert not context.execute_v2([X.ctypes.data, y.ctypes.data])
    assert "[ERROR] Exception thrown from process_debug_tensor() RuntimeError" in capsys.readouterr().err
