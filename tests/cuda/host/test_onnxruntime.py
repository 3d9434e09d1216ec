"""Devices of paper inside ONNX Runtime: each is listed, and what is rewritten with channels last runs there."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail
from dovetail.provider.loader import get_default_options, get_provider
from dovetail_cuda.lower.images import NHWC_DOMAIN
from dovetail_cuda.run.arenas.arena_memory import ArenaMemory
from dovetail_cuda.run.arenas.memory import PoolMemory
from tests.cuda.channels_last import HEAD, MODELS
from tests.cuda.fallbacks import FALLBACKS
from tests.cuda.graphs import check_graphs, check_moved_buffers, check_short_threads
from tests.cuda.host.callers_memory import CallersMemory
from tests.cuda.host.fake_provider import fake_cuda
from tests.cuda.inputs import make_inputs
from tests.cuda.models import make_mlp

ort = pytest.importorskip("onnxruntime", reason="ONNX Runtime, in which the device is, is not here")
ort_ep = pytest.importorskip("tests.support.ort_ep")


@pytest.fixture
def device(paper: Any) -> Iterator[Any]:
    """The device as ONNX Runtime lists it."""
    with _listed() as found:
        yield found["cuda"]


@contextmanager
def _listed() -> Iterator[dict[str, Any]]:
    """The devices of the provider as ONNX Runtime lists them, by their names."""
    from tests.support.ort_devices import DeviceInOrt

    name = ort_ep.register("dovetail-paper")
    listed = [device for device in ort.get_ep_devices() if device.ep_name == ort_ep.EP]
    backends = {device.ep_metadata["backend"]: device for device in listed}
    yield {each: DeviceInOrt(get_provider(each), backends[each]) for each in backends if each.startswith("cuda")}
    ort.unregister_execution_provider_library(name)


@pytest.mark.parametrize("name", ["BatchNormalization", "AveragePool", "blocks", "GridSample", "LRN"])
def test_what_onnxruntime_rewrites_runs_here(device: Any, paper: Any, name: str) -> None:
    ops, text = MODELS[name]
    model = onnx.parser.parse_model(HEAD + text)
    inputs = make_inputs(model)
    session = device.session(model, prefer_nhwc="1")
    (part,) = session.get_provider_graph_assignment_info()
    rewritten = [node.op_type for node in part.get_nodes() if node.domain == NHWC_DOMAIN]
    assert sorted(rewritten) == sorted(ops.split())
    before = len(paper[1].launched)
    (result,) = session.run(None, dict(zip([value.name for value in model.graph.input], inputs, strict=True)))
    assert len(paper[1].launched) > before
    expected = dovetail.compile(model, providers=["cpu"])(*inputs)
    np.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-5)


def test_every_device_is_listed_by_its_ordinal(tmp_path: Any) -> None:
    model = onnx.parser.parse_model(HEAD + "(float[3] x) => (float[3] y) { y = Neg(x) }")
    x = np.array([1, 2, 3], np.float32)
    with fake_cuda(str(tmp_path), num_devices=2), _listed() as found:
        assert {name: device.number for name, device in found.items()} == {"cuda": 0, "cuda:1": 1}
        assert [device.ep_device.ep_metadata["cuda_device_id"] for device in found.values()] == ["0", "1"]
        for device in found.values():
            session, source, target = device.session(model), device.value(x), device.empty([3])
            binding = session.io_binding()
            binding.bind_ortvalue_input("x", source)
            binding.bind_ortvalue_output("y", target)
            session.run_with_iobinding(binding)
            np.testing.assert_array_equal(target.numpy(), -x)


@pytest.mark.parametrize("use_pool", ["0", "1"])
def test_a_session_has_memory_of_the_pool_or_of_an_arena(device: Any, use_pool: str) -> None:
    model = onnx.parser.parse_model(HEAD + "(float[3] x) => (float[3] y) { y = Neg(x) }")
    x, options = np.array([1, 2, 3], np.float32), {"arena.use_cuda_mempool": use_pool}
    session = device.session(model, **options)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], -x)
    memory = get_provider("cuda", {**get_default_options("cuda"), **options}).allocator
    assert isinstance(memory, PoolMemory if use_pool == "1" else ArenaMemory)
    used_bytes = memory.used_bytes if isinstance(memory, PoolMemory) else memory.statistics.used_bytes
    assert used_bytes >= 1 << 20
    del session


def test_a_shrink_reaches_the_pool(device: Any, paper: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    trimmed: list[int] = []
    monkeypatch.setattr(paper[1], "trim_pool", lambda ordinal, kept: trimmed.append(kept) or 0)
    model = onnx.parser.parse_model(HEAD + "(float[3] x) => (float[3] y) { y = Neg(x) }")
    options = {"arena.use_cuda_mempool": "1", "arena.cuda_mempool_bytes_to_keep_on_shrink": "4096"}
    session, run_options = device.session(model, **options), ort.RunOptions()
    run_options.add_run_config_entry("memory.enable_memory_arena_shrinkage", f"gpu:{device.number}")
    session.run(None, {"x": np.ones(3, np.float32)}, run_options)
    assert trimmed == [4096]


def test_a_session_runs_on_the_stream_of_the_caller(
    device: Any, paper: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, driver = paper
    stream = provider.create_stream()
    lent, used, launch = stream.handle, set[int](), driver.launch

    def note(what: Any, parameters: Any, stream: int) -> None:
        used.add(stream)
        launch(what, parameters, stream)

    monkeypatch.setattr(driver, "launch", note)
    model = onnx.parser.parse_model(HEAD + "(float[3] x) => (float[3] y) { y = Neg(x) }")
    x, names = np.array([1, 2, 3], np.float32), {"user_compute_stream": str(lent), "kernel_store": str(tmp_path)}
    options = {f"provider.cuda.{name}": text for name, text in names.items()}
    sessions = [device.session(model, **options) for _ in range(2)]
    used.clear()
    for session in (*sessions, sessions[0]):
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], -x)
    assert used == {lent}
    del session
    sessions.pop()
    np.testing.assert_array_equal(sessions[0].run(None, {"x": x})[0], -x)
    rows = onnx.parser.parse_model(HEAD + "(float[n,3] x) => (float[n,3] y) { y = Neg(x) }")
    check_graphs(device.session(rows, graph_capture="1", **options), device, {1: 2})
    assert used == {lent}


@pytest.mark.parametrize("route", ["compile", "kernels"])
def test_graphs_follow_buffers_shapes_and_threads(device: Any, route: str) -> None:
    model = onnx.parser.parse_model(HEAD + "(float[n,3] x) => (float[n,3] y) { y = Neg(x) }")
    session = device.session(model, graph_capture="1", route=route)
    check_moved_buffers(session, device)
    check_short_threads(session, device)


@pytest.mark.parametrize("use_pool", ["0", "1"])
def test_each_id_and_thread_has_a_graph(
    device: Any, paper: Any, use_pool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replayed, launch_graph = [], paper[1].launch_graph

    def note(graph: int, stream: int) -> None:
        replayed.append(graph)
        launch_graph(graph, stream)

    monkeypatch.setattr(paper[1], "launch_graph", note)
    model = onnx.parser.parse_model(HEAD + "(float[n,3] x) => (float[n,3] y) { y = Neg(x) }")
    session = device.session(model, graph_capture="1", **{"arena.use_cuda_mempool": use_pool})
    check_graphs(session, device, {1: 2, 2: 5})
    own = set(replayed)
    assert len(own) == 2
    with ThreadPoolExecutor(1) as thread:
        thread.submit(check_graphs, session, device, {1: 2}).result()
    assert len(set(replayed) - own) == 1


def test_nodes_are_taken_as_long_as_memory_is_free(tmp_path: Any) -> None:
    model = make_mlp(rows=4, width=64)
    entries = {"session.resource_cuda_partitioning_settings": ","}
    with fake_cuda(str(tmp_path), memory_bytes=128 << 10) as (provider, _), _listed() as found:
        taken = provider.allocator.allocate(64 << 10, 256, 0)
        session = found["cuda"].session(model, fallback=True, entries=entries)
        assert ort_ep.assigned(session)[ort_ep.EP] == ["Gemm", "Gemm", "Gemm", "Relu", "Relu", "Relu"]
        del session
        more = provider.allocator.allocate(44 << 10, 256, 0)
        session = found["cuda"].session(model, fallback=True, entries=entries)
        assert ort_ep.assigned(session)[ort_ep.EP] == ["Gemm", "Relu"]
        del session
        assert provider.allocator.deallocate(taken)
        assert provider.allocator.deallocate(more)


def test_a_session_takes_memory_of_the_caller(device: Any, paper: Any, tmp_path: Any) -> None:
    caller = CallersMemory(paper[1])
    model, x = make_mlp(rows=4, width=8), np.ones((4, 8), np.float32)
    options = {**caller.options, "kernel_store": str(tmp_path)}
    session = device.session(model, **{f"provider.cuda.{name}": text for name, text in options.items()})
    (result,) = session.run(None, {"x": x})
    np.testing.assert_allclose(result, dovetail.compile(model, providers=["cpu"])(x), rtol=1e-5, atol=1e-5)
    assert caller.num_taken >= 2, "weights, and an arena of the session"
    del session
    gc.collect()
    get_provider("cuda", options).shrink_memory()
    assert not caller.given


@pytest.mark.parametrize("options", [{"arena.max_mem": "100000000"}, {"provider.cuda.use_tf32": "0"}])
def test_memory_of_a_session_comes_back_with_its_end(device: Any, paper: Any, options: dict[str, str]) -> None:
    provider, driver = paper
    model, x = make_mlp(rows=4, width=8), np.ones((4, 8), np.float32)

    def measure(**own: str) -> int:
        session = device.session(model, **own)
        session.run(None, {"x": x})
        del session
        gc.collect()
        provider._gpu.release_now()
        return sum(driver.sizes.values())

    assert measure(**options) == measure(**options)


@pytest.mark.parametrize("route", ["compile", "kernels"])
@pytest.mark.parametrize("name", FALLBACKS)
def test_a_partition_of_host_steps_runs_in_a_session_on_the_device(device: Any, name: str, route: str) -> None:
    model = onnx.parser.parse_model(HEAD + FALLBACKS[name])
    arrays = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "s": np.array([6 if name == "Reshape" else 1])}
    feed = {value.name: arrays[value.name] for value in model.graph.input}
    session = device.session(model, fallback=True, claim="all", route=route)
    wanted = ort_ep.reference_session(model).run(None, feed)
    for _ in range(3):
        for result, expected in zip(session.run(None, feed), wanted, strict=True):
            np.testing.assert_allclose(result, expected)
