"""Runtimes, engines and contexts: answers, addresses, profiles, debug tensors, profilers and allocators."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from dovetail_tensorrt import trt
from dovetail_tensorrt.cudart import runtime
from tests.support.trt_objects import KeptMessages, build, make_network, relu_network, run

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


def test_layers_are_numbered_through_all_profiles() -> None:
    bounds = [((1, 3), (1, 3), (2, 3)), ((4, 3), (4, 3), (8, 3))]
    engine = build(KeptMessages(), (-1, 3), bounds)
    assert engine.num_layers == 2
    inspector, oneline = engine.create_engine_inspector(), trt.LayerInformationFormat.ONELINE
    shown = [inspector.get_layer_information(index, oneline) for index in range(3)]
    assert shown[0]
    assert shown[0] == shown[1]
    assert shown[2] == ""
    context = engine.create_execution_context()
    assert context.set_optimization_profile_async(1, 0)
    inspector.execution_context = context
    assert inspector.get_layer_information(1, oneline) == shown[1]
    assert inspector.get_engine_information(oneline)


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


class _SilentListener(trt.IDebugListener):
    def __init__(self) -> None:
        trt.IDebugListener.__init__(self)
        self.names: list[str] = []

    def process_debug_tensor(self, *arguments: Any) -> None:
        self.names.append(arguments[4])


def test_a_listener_that_answers_nothing_has_no_objection() -> None:
    builder, network = relu_network(KeptMessages())
    assert network.mark_debug(network.get_input(0))
    engine = builder.build_engine_with_config(network, builder.create_builder_config())
    context, listener = engine.create_execution_context(), _SilentListener()
    context.set_debug_listener(listener)
    context.set_all_tensors_debug_state(True)
    assert context.execute_v2([X.ctypes.data, np.zeros_like(X).ctypes.data])
    assert listener.names == ["x"]


@pytest.mark.parametrize("providers", [["cpu"], ["onnxruntime", "cpu"]])
def test_what_no_fusion_took_away_can_be_watched(providers: list[str]) -> None:
    if "onnxruntime" in providers:
        pytest.importorskip("onnxruntime")
    builder, network = make_network(KeptMessages())
    assert network.mark_unfused_tensors_as_debug_tensors()
    x = network.add_input("x", trt.float32, (2, 3))
    wide = network.add_einsum([x, x], "ij,kj->ik").get_output(0)
    wide.name = "wide"
    network.mark_output(network.add_topk(wide, trt.TopKOperation.MAX, 1, 2).get_output(0))
    config = builder.create_builder_config()
    config.providers = providers
    engine = builder.build_engine_with_config(network, config)
    assert engine.num_io_tensors == 2
    context, listener = engine.create_execution_context(), _SilentListener()
    context.set_debug_listener(listener)
    context.set_all_tensors_debug_state(True)
    assert context.execute_v2([X.ctypes.data, np.zeros((2, 1), np.float32).ctypes.data])
    assert listener.names == (["x"] if "onnxruntime" in providers else ["x", "wide"])
    assert network.unmark_unfused_tensors_as_debug_tensors()
    assert not builder.build_engine_with_config(network, config).is_debug_tensor("x")


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


def test_a_shape_input_decides_what_a_shuffle_gives() -> None:
    logger = KeptMessages()
    builder = trt.Builder(logger)
    network = builder.create_network()
    layer = network.add_shuffle(network.add_input("x", trt.float32, (-1, 6)))
    layer.set_input(1, network.add_input("s", trt.int32, (2,)))
    layer.get_output(0).name = "y"
    network.mark_output(layer.get_output(0))
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 6), (2, 6), (4, 6))
    profile.set_shape_input("s", (1, 1), (3, 4), (24, 24))
    config = builder.create_builder_config()
    config.add_optimization_profile(profile)
    engine = builder.build_engine_with_config(network, config)
    assert engine is not None
    assert engine.is_shape_inference_io("s")
    assert engine.get_tensor_location("s") == trt.TensorLocation.HOST
    context = engine.create_execution_context()
    assert context is not None
    sizes, x, y = np.int32([4, 3]), np.arange(12, dtype=np.float32).reshape(2, 6), np.empty((4, 3), np.float32)
    assert not context.all_shape_inputs_specified
    for name, array in (("s", sizes), ("x", x), ("y", y)):
        assert context.set_tensor_address(name, array.ctypes.data)
    assert context.set_input_shape("x", x.shape)
    assert context.all_shape_inputs_specified
    assert context.get_tensor_shape("y") == (4, 3)
    assert context.execute_async_v3(0)
    np.testing.assert_array_equal(y, x.reshape(4, 3))


class _ExactReader(trt.IStreamReader):
    """Refuses to be asked for more than there is, as readers over buffers do."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.data, self.place = data, 0

    def read(self, size: int) -> bytes:
        assert self.place + size <= len(self.data)
        self.place += size
        return self.data[self.place - size : self.place]


class _ExactReaderV2(trt.IStreamReaderV2):
    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.data, self.place = data, 7

    def read(self, num_bytes: int, stream: int) -> bytes:
        assert self.place + num_bytes <= len(self.data)
        self.place += num_bytes
        return self.data[self.place - num_bytes : self.place]

    def seek(self, offset: int, where: Any) -> bool:
        assert where == trt.SeekPosition.SET
        self.place = offset
        return True


@pytest.mark.parametrize("make_reader", [_ExactReader, _ExactReaderV2])
def test_a_stream_reader_is_never_asked_for_more_than_there_is(make_reader: Any) -> None:
    logger = KeptMessages()
    plan = bytes(build(logger).serialize())
    reader = make_reader(plan)
    engine = trt.Runtime(logger).deserialize_cuda_engine(reader)
    assert engine is not None
    assert reader.place == len(plan)
    np.testing.assert_array_equal(run(engine.create_execution_context(), X), np.maximum(X, 0))


@pytest.mark.parametrize("data", [b"", b"12345678", b"no plan at all, and long", (20).to_bytes(8, "little") + b"{"])
def test_a_stream_without_a_plan_is_refused(data: bytes) -> None:
    class Reader(trt.IStreamReader):
        def __init__(self) -> None:
            super().__init__()
            self.left = data

        def read(self, size: int) -> bytes:
            piece, self.left = self.left[:size], self.left[size:]
            return piece

    logger = KeptMessages()
    assert trt.Runtime(logger).deserialize_cuda_engine(Reader()) is None
    assert len(logger.errors) == 1


@pytest.mark.parametrize("answer", [None, bytes(9)])
def test_a_stream_reader_that_gives_something_else_is_told(answer: Any) -> None:
    class Reader(trt.IStreamReader):
        def read(self, size: int) -> Any:
            return answer

    logger = KeptMessages()
    assert trt.Runtime(logger).deserialize_cuda_engine(Reader()) is None
    assert "the stream reader did not give the bytes that were asked for; expected at most 8 bytes" in logger.errors[0]


def test_a_plan_of_tensorrt_is_told_from_a_damaged_one() -> None:
    logger = KeptMessages()
    assert trt.Runtime(logger).deserialize_cuda_engine(b"ftrt" + bytes(60)) is None
    assert "this is a plan of TensorRT and not one of Dovetail\n  fix: build a plan from the model" in logger.errors[0]


def test_names_of_version_10_that_have_no_effect() -> None:
    logger = KeptMessages()
    engine = build(logger)
    assert engine.has_implicit_batch_dimension is False
    assert engine.weight_streaming_budget == engine.minimum_weight_streaming_budget == 0
    engine.weight_streaming_budget = 0
    assert logger.errors == []


def test_a_captured_run_keeps_its_shapes_and_addresses() -> None:
    logger = KeptMessages()
    context = build(logger, (-1, 3), [((1, 3), (2, 3), (4, 3))]).create_execution_context()
    first, second = X.copy(), np.full((4, 3), -5, np.float32)
    expected = run(context, first)
    captured = np.zeros((2, 3), np.float32)
    context.set_tensor_address("y", captured.ctypes.data)
    runtime.cudaStreamBeginCapture(0)
    assert context.execute_async_v3(0)
    _, graph = runtime.cudaStreamEndCapture(0)
    assert captured.max() == 0
    np.testing.assert_array_equal(run(context, second), 0)
    _, executable = runtime.cudaGraphInstantiate(graph, 0)
    assert runtime.cudaGraphLaunch(executable, 0)[0] == 0
    np.testing.assert_array_equal(captured, expected)
    assert context.get_tensor_shape("x") == (4, 3)


class _GrowingAllocator(trt.IOutputAllocator):
    """Allocates when more is needed, and otherwise answers with the memory that there is."""

    def __init__(self) -> None:
        super().__init__()
        self.size, self.address, self.shape = 0, 0, ()

    def reallocate_output_async(self, tensor_name: str, memory: int, size: int, alignment: int, stream: int) -> int:
        if size <= self.size:
            return memory
        self.size, (_, self.address) = size, runtime.cudaMalloc(size)
        return self.address

    def notify_shape(self, tensor_name: str, shape: Any) -> None:
        self.shape = tuple(shape)


def test_an_output_stays_where_its_allocator_put_it() -> None:
    context = build(KeptMessages(), (-1, 3), [((1, 3), (2, 3), (4, 3))]).create_execution_context()
    allocator = _GrowingAllocator()
    assert context.set_output_allocator("y", allocator)
    small = np.zeros(1, np.float32)
    for rows in (2, 4, 1):
        x = np.full((rows, 3), rows, np.float32)
        context.set_input_shape("x", x.shape)
        assert context.execute_v2([x.ctypes.data, small.ctypes.data])
        found = np.empty(allocator.shape, np.float32)
        assert runtime.cudaMemcpy(found, allocator.address, found.nbytes)[0] == 0
        np.testing.assert_array_equal(found, x)
    assert small.item() == 0
