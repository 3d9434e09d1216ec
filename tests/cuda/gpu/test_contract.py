"""The provider contract on a GPU: a kernel, a Python plugin and a product, as one captured graph."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dovetail as dt
from dovetail_cuda.run.streams import CudaGraph
from tests.support.plugins import ScalePlugin

torch: Any = pytest.importorskip("torch", reason="needs PyTorch with CUDA")
cupy: Any = pytest.importorskip("cupy", reason="needs CuPy")

ROWS, INNER, COLUMNS = 64, 256, 512
RNG = np.random.default_rng(1)
W = RNG.standard_normal((INNER, COLUMNS)).astype(np.float32)
X = RNG.standard_normal((ROWS, INNER)).astype(np.float32)
Y = np.maximum(X, 0) * np.float32(2) @ W


class CupyScale(ScalePlugin):
    """Puts its work on the stream that it gets, over addresses of the device."""

    formats = (dt.TensorFormat.LINEAR,)
    types = (dt.float32,)
    preferred_memory = "cuda"

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int
    ) -> None:
        source, target = (_open(a, d) for a, d in ((inputs[0], input_desc[0]), (outputs[0], output_desc[0])))
        with cupy.cuda.ExternalStream(stream):
            cupy.multiply(source, np.float32(self.factor), out=target)


def _open(address: int, desc: Any) -> Any:
    size = 4 * dt.volume(desc.dims)
    memory = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(address, size, None), 0)
    return cupy.ndarray(tuple(desc.dims), cupy.float32, memory)


class CupyScaleCreator(dt.IPluginCreatorV3One):
    def __init__(self) -> None:
        super().__init__()
        self.name, self.plugin_version, self.plugin_namespace = "TestScale", "1", ""
        self.field_names = dt.PluginFieldCollection([])

    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
        return CupyScale(2.0)


class Graphs:
    """Every graph that was captured, and how often one took over another recording."""

    def __init__(self) -> None:
        self.captured: list[CudaGraph] = []
        self.num_updates = 0


@pytest.fixture
def graphs(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> Graphs:
    found, end_capture, update = Graphs(), cuda.end_capture, CudaGraph.update

    def end(stream: Any) -> Any:
        found.captured.append(end_capture(stream))
        return found.captured[-1]

    def count(graph: CudaGraph, recorded: Any) -> bool:
        is_done = update(graph, recorded)
        found.num_updates += is_done
        return is_done

    monkeypatch.setattr(cuda, "end_capture", end)
    monkeypatch.setattr(CudaGraph, "update", count)
    return found


@pytest.fixture(scope="module")
def plan(cuda: Any) -> bytes:
    dt.get_plugin_registry().register_creator(CupyScaleCreator())
    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input("x", dt.float32, (ROWS, INNER))
    h = network.add_activation(x, dt.ActivationType.RELU).get_output(0)
    layer = network.add_plugin_v3([h], [], CupyScale(2.0))
    layer.name = "scale"
    w = network.add_constant((INNER, COLUMNS), W).get_output(0)
    op = dt.MatrixOperation.NONE
    y = network.add_matrix_multiply(layer.get_output(0), op, w, op).get_output(0)
    y.name = "y"
    network.mark_output(y)
    config = builder.create_builder_config()
    config.providers = ["cuda", "cpu"]
    config.layer_providers = {"scale": "cuda"}
    config.clear_flag(dt.BuilderFlag.TF32)
    return bytes(builder.build_serialized_network(network, config))


@pytest.fixture(scope="module")
def engine(plan: bytes) -> Any:
    return dt.Runtime().deserialize_cuda_engine(plan)


def test_results_are_right(engine: Any) -> None:
    for _ in range(3):
        np.testing.assert_allclose(engine(X), Y, rtol=1e-4, atol=1e-3)


def test_all_steps_are_one_captured_graph(graphs: Graphs, plan: bytes) -> None:
    engine = dt.Runtime().deserialize_cuda_engine(plan)
    for _ in range(4):
        np.testing.assert_allclose(engine(X), Y, rtol=1e-4, atol=1e-3)
    assert [step.provider for step in engine.manifest.programs[0].steps] == ["cuda"] * 3
    assert len(graphs.captured) == 1
    assert graphs.captured[0].num_nodes >= 3


def test_tensors_of_pytorch_go_in_and_outputs_stay_on_the_device(engine: Any) -> None:
    context = engine.create_execution_context()
    given = torch.from_numpy(X).cuda()
    for _ in range(3):
        (made,) = context.run([given], keep_on_device=True)
        result = torch.from_dlpack(made)
        assert result.is_cuda
        np.testing.assert_allclose(result.cpu().numpy(), Y, rtol=1e-4, atol=1e-3)


def test_addresses_of_the_device_on_a_stream_of_the_caller(engine: Any) -> None:
    context = engine.create_execution_context()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        given, result = torch.from_numpy(X).cuda(), torch.full((ROWS, COLUMNS), -1.0, device="cuda")
        context.set_tensor_address("x", given.data_ptr())
        context.set_tensor_address("y", result.data_ptr())
        for _ in range(3):
            context.execute_async_v3(stream.cuda_stream)
            given += 0
    stream.synchronize()
    np.testing.assert_allclose(result.cpu().numpy(), Y, rtol=1e-4, atol=1e-3)


def test_more_buffers_than_graphs_update_those_that_are_there(graphs: Graphs, plan: bytes) -> None:
    """Twelve outputs in turn: eight graphs are kept, and from the ninth on one takes over a new recording."""
    engine = dt.Runtime().deserialize_cuda_engine(plan)
    context = engine.create_execution_context()
    stream = torch.cuda.Stream()
    inputs = [torch.from_numpy(X * k).cuda() for k in range(1, 13)]
    results = [torch.zeros((ROWS, COLUMNS), device="cuda") for _ in inputs]
    torch.cuda.synchronize()
    for _ in range(4):
        for given, result in zip(inputs, results, strict=True):
            context.set_tensor_address("x", given.data_ptr())
            context.set_tensor_address("y", result.data_ptr())
            for _ in range(3):
                context.execute_async_v3(stream.cuda_stream)
    stream.synchronize()
    for k, result in enumerate(results, start=1):
        np.testing.assert_allclose(result.cpu().numpy(), Y * k, rtol=1e-4, atol=1e-2)
    assert graphs.num_updates > 0


def test_another_thread_that_waits_for_the_device_spoils_no_run(plan: bytes) -> None:
    """Whoever waits for the whole device breaks a recording that is under way; the run goes on without it."""
    engine = dt.Runtime().deserialize_cuda_engine(plan)
    has_ended = threading.Event()

    def wait_for_device() -> None:
        while not has_ended.wait(0.0003):
            with contextlib.suppress(RuntimeError):  # that is how it is told that a stream was recorded
                torch.cuda.synchronize()

    waiter = threading.Thread(target=wait_for_device)
    waiter.start()
    try:
        for _ in range(40):
            context = engine.create_execution_context()
            for _ in range(4):
                (result,) = context.run([X])
                np.testing.assert_allclose(result, Y, rtol=1e-4, atol=1e-3)
            context.close()
    finally:
        has_ended.set()
        waiter.join()


def test_arrays_of_cupy_go_in(engine: Any) -> None:
    context = engine.create_execution_context()
    (made,) = context.run([cupy.asarray(X)], keep_on_device=True)
    np.testing.assert_allclose(cupy.from_dlpack(made).get(), Y, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(cupy.asarray(made).get(), Y, rtol=1e-4, atol=1e-3)


def test_a_replay_costs_little(engine: Any, plan: bytes, capsys: Any) -> None:
    """Prints what a run costs, replayed and not, against the same in PyTorch."""
    given, result = torch.from_numpy(X).cuda(), torch.empty((ROWS, COLUMNS), device="cuda")
    stream, w = torch.cuda.Stream(), torch.from_numpy(W).cuda()
    runtime = dt.Runtime()
    runtime.capture_graphs = False
    rows: dict[str, Callable[[], Any]] = {}
    for name, used in (("replayed", engine), ("launched", runtime.deserialize_cuda_engine(plan))):
        context = used.create_execution_context()
        context.set_tensor_address("x", given.data_ptr())
        context.set_tensor_address("y", result.data_ptr())
        rows[name] = lambda context=context: context.execute_async_v3(stream.cuda_stream)
    rows["PyTorch"] = lambda: torch.matmul(torch.relu(given) * 2, w, out=result)
    lines = []
    for name, run in rows.items():
        with torch.cuda.stream(stream):
            lines.append(f"{name}: {_time_us(run, stream):.1f} us a run")
    with capsys.disabled():
        print("\n" + "\n".join(lines))


def _time_us(run: Callable[[], Any], stream: Any, count: int = 300) -> float:
    for _ in range(20):
        run()
    stream.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        run()
    stream.synchronize()
    return (time.perf_counter() - start) / count * 1e6
