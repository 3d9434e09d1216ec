"""The GPU as a device of ONNX Runtime: sessions whose values lie on it, captured graphs, memory and profiles."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from dovetail_cuda.lower.images import NHWC_DOMAIN
from tests.cuda.channels_last import HEAD, MODELS
from tests.cuda.fallbacks import FALLBACKS
from tests.cuda.graphs import check_graphs, check_moved_buffers, check_short_threads
from tests.cuda.inputs import make_inputs
from tests.cuda.models import make_block, make_mlp

_EP = Path(__file__).parents[3] / "packages" / "onnxruntime-ep-dovetail"
_SHAPE = (1, 64, 256)


@pytest.fixture(scope="module")
def device(cuda: Any) -> Iterator[Any]:
    """The GPU as ONNX Runtime lists it."""
    if not (_EP / "src/onnxruntime_ep_dovetail/library/libdovetail_ep.so").exists():
        subprocess.run([sys.executable, str(_EP / "hatch_build.py")], check=True)
    from tests.support import ort_ep
    from tests.support.ort_devices import DeviceInOrt

    name = ort_ep.register("dovetail-cuda")
    (listed,) = ort_ep.devices("cuda")
    yield DeviceInOrt(cuda, listed)
    ort.unregister_execution_provider_library(name)


class _Copies:
    """Counts copies that go through the driver."""

    def __init__(self, driver: Any) -> None:
        self.count = 0
        self._copy = driver.copy

    def __call__(self, *arguments: Any) -> None:
        self.count += 1
        self._copy(*arguments)


@pytest.fixture
def copies(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> _Copies:
    """How many bytes were moved, from now on."""
    driver = cuda._gpu.driver
    counted = _Copies(driver)
    monkeypatch.setattr(driver, "copy", counted)
    return counted


def _feed(dtype: str = "float16") -> Any:
    return np.random.default_rng(7).standard_normal(_SHAPE).astype(np.dtype(dtype))


def _model(dtype: str = "float16") -> Any:
    return make_block(dtype, *_SHAPE, heads=4, depth=2)


def _expected(model: Any, x: Any) -> Any:
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def _bind(session: Any, source: Any, target: Any) -> Any:
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", source)
    binding.bind_ortvalue_output(session.get_outputs()[0].name, target)
    return binding


def _error(result: Any, expected: Any) -> float:
    wide, right = result.astype(np.float64), expected.astype(np.float64)
    return float(np.linalg.norm(wide - right) / np.linalg.norm(right))


def test_the_gpu_says_what_it_is(device: Any, cuda: Any) -> None:
    assert device.ep_device.ep_metadata["backend"] == "cuda"
    assert device.ep_device.memory_info(ort.OrtDeviceMemoryType.DEFAULT).device_vendor_id


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_session_runs_wholly_on_the_gpu(device: Any, dtype: str) -> None:
    model, x = _model(dtype), _feed(dtype)
    session = device.session(model)
    for _ in range(4):
        assert _error(session.run(None, {"x": x})[0], _expected(model, x)) < 5e-3


def test_values_on_the_gpu_are_not_copied(device: Any, copies: _Copies) -> None:
    model, x = _model(), _feed()
    session, source, target = device.session(model), device.value(x), device.empty(_SHAPE, np.float16)
    binding = _bind(session, source, target)
    session.run_with_iobinding(binding)
    before = copies.count
    for _ in range(5):
        session.run_with_iobinding(binding)
    assert copies.count == before
    assert _error(target.numpy(), _expected(model, x)) < 5e-3


def test_graphs_are_captured_by_their_ids(device: Any, capsys: Any) -> None:
    model, x = _model(), _feed()
    session = device.session(model, graph_capture="1")
    source, target = device.value(x), device.empty(_SHAPE, np.float16)
    binding, times = _bind(session, source, target), []
    for _ in range(50):
        start = time.perf_counter()
        session.run_with_iobinding(binding)
        times.append((time.perf_counter() - start) * 1e6)
    other = _feed() + np.float16(0.5)
    source.update_inplace(other)
    session.run_with_iobinding(binding)
    with capsys.disabled():
        print(f"\ntwo blocks in ONNX Runtime, replayed: {np.median(times[10:]):.1f} us a run")
    assert _error(target.numpy(), _expected(model, other)) < 5e-3


@pytest.mark.parametrize("use_pool", ["0", "1"])
def test_each_id_has_a_graph_with_shapes_of_its_own(device: Any, use_pool: str) -> None:
    model = onnx.parser.parse_model(HEAD + "(float[n,3] x) => (float[n,3] y) { y = Neg(x) }")
    session = device.session(model, graph_capture="1", **{"arena.use_cuda_mempool": use_pool})
    check_graphs(session, device, {1: 2, 2: 5, 3: 700})


@pytest.mark.parametrize("route", ["compile", "kernels"])
def test_graphs_follow_buffers_shapes_and_threads(device: Any, route: str) -> None:
    model = onnx.parser.parse_model(HEAD + "(float[n,3] x) => (float[n,3] y) { y = Neg(x) }")
    session = device.session(model, graph_capture="1", route=route)
    check_moved_buffers(session, device)
    check_short_threads(session, device)


def test_inputs_of_the_host_and_outputs_on_the_gpu(device: Any) -> None:
    model, x = _model(), _feed()
    session, target = device.session(model), device.empty(_SHAPE, np.float16)
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_ortvalue_output(session.get_outputs()[0].name, target)
    binding.synchronize_inputs()
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    assert _error(target.numpy(), _expected(model, x)) < 5e-3


def test_a_session_runs_on_the_stream_of_the_caller(device: Any, cuda: Any) -> None:
    model, x, stream = _model(), _feed(), cuda.create_stream()
    session = device.session(model, **{"provider.cuda.user_compute_stream": str(stream.handle)})
    for _ in range(3):
        assert _error(session.run(None, {"x": x})[0], _expected(model, x)) < 5e-3
    del session
    stream.close()


@pytest.mark.parametrize(
    "name", ["3x3", "residual", "BatchNormalization", "AveragePool", "ConvTranspose", "GridSample"]
)
def test_what_onnxruntime_rewrites_with_channels_last_runs_here(device: Any, name: str) -> None:
    ops, text = MODELS[name]
    model = onnx.parser.parse_model(HEAD + text)
    inputs = make_inputs(model)
    session = device.session(model, prefer_nhwc="1")
    (part,) = session.get_provider_graph_assignment_info()
    assert sorted(node.op_type for node in part.get_nodes() if node.domain == NHWC_DOMAIN) == sorted(ops.split())
    feeds = dict(zip([value.name for value in model.graph.input], inputs, strict=True))
    reference = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert _error(session.run(None, feeds)[0], reference.run(None, feeds)[0]) < 5e-3


def test_nodes_that_stay_on_the_cpu_get_copies(device: Any) -> None:
    model = make_mlp("float32", 64, 256)
    x = np.random.default_rng(8).standard_normal((64, 256)).astype(np.float32)
    session = device.session(model, fallback=True, exclude="Relu")
    assert _error(session.run(None, {"x": x})[0], _expected(model, x)) < 5e-3


def _free_bytes() -> int:
    from cuda.bindings import driver

    return int(driver.cuMemGetInfo()[1])


def test_memory_of_sessions_that_end_comes_back(device: Any, cuda: Any) -> None:
    model, x = _model(), _feed()

    def measure() -> int:
        session = device.session(model)
        session.run(None, {"x": x})
        del session
        cuda.synchronize()
        return _free_bytes()

    first = [measure() for _ in range(3)][-1]
    assert abs([measure() for _ in range(5)][-1] - first) < 64 << 20


@pytest.mark.parametrize("route", ["compile", "kernels"])
@pytest.mark.parametrize("name", FALLBACKS)
def test_a_partition_of_host_steps_runs_in_a_session_on_the_gpu(device: Any, name: str, route: str) -> None:
    from tests.support import ort_ep

    model = onnx.parser.parse_model(HEAD + FALLBACKS[name])
    arrays = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "s": np.array([6 if name == "Reshape" else 1])}
    feed = {value.name: arrays[value.name] for value in model.graph.input}
    session = device.session(model, fallback=True, claim="all", route=route)
    wanted = ort_ep.reference_session(model).run(None, feed)
    for _ in range(3):
        for result, expected in zip(session.run(None, feed), wanted, strict=True):
            np.testing.assert_allclose(result, expected)
