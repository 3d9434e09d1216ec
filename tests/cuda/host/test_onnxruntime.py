"""Devices of paper inside ONNX Runtime: each is listed, and what is rewritten with channels last runs there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail
from dovetail.provider.loader import get_default_options, get_provider
from dovetail_cuda.lower.images import NHWC_DOMAIN
from dovetail_cuda.run.arenas.arena_memory import ArenaMemory
from dovetail_cuda.run.memory import PoolMemory
from tests.cuda.channels_last import HEAD, MODELS
from tests.cuda.host.fake_provider import fake_cuda
from tests.cuda.inputs import make_inputs

ort = pytest.importorskip("onnxruntime", reason="ONNX Runtime, in which the device is, is not here")


@pytest.fixture
def device(paper: Any) -> Iterator[Any]:
    """The device as ONNX Runtime lists it."""
    with _listed() as found:
        yield found["cuda"]


@contextmanager
def _listed() -> Iterator[dict[str, Any]]:
    """The devices of the provider as ONNX Runtime lists them, by their names."""
    from tests.support import ort_ep
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
        for device in found.values():
            session, source, target = device.session(model), device.value(x), device.empty([3])
            binding = session.io_binding()
            binding.bind_ortvalue_input("x", source)
            binding.bind_ortvalue_output("y", target)
            session.run_with_iobinding(binding)
            np.testing.assert_array_equal(target.numpy(), -x)


def test_a_session_has_memory_of_the_pool_or_of_an_arena(device: Any, paper: Any) -> None:
    model = onnx.parser.parse_model(HEAD + "(float[3] x) => (float[3] y) { y = Neg(x) }")
    x = np.array([1, 2, 3], np.float32)
    for use_pool, kind in (("1", PoolMemory), ("0", ArenaMemory)):
        options = {"arena.use_cuda_mempool": use_pool, "arena.cuda_mempool_bytes_to_keep_on_shrink": "4096"}
        (result,) = device.session(model, **options).run(None, {"x": x})
        np.testing.assert_array_equal(result, -x)
        source = get_provider("cuda", {**get_default_options("cuda"), **options})
        assert isinstance(source.allocator, kind)
        assert paper[1].sizes


def test_a_shrink_reaches_the_pool(device: Any, paper: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    trimmed: list[int] = []
    monkeypatch.setattr(paper[1], "trim_pool", lambda ordinal, kept: trimmed.append(kept) or 0)
    model = onnx.parser.parse_model(HEAD + "(float[3] x) => (float[3] y) { y = Neg(x) }")
    options = {"arena.use_cuda_mempool": "1", "arena.cuda_mempool_bytes_to_keep_on_shrink": "4096"}
    session, run_options = device.session(model, **options), ort.RunOptions()
    run_options.add_run_config_entry("memory.enable_memory_arena_shrinkage", f"gpu:{device.number}")
    session.run(None, {"x": np.ones(3, np.float32)}, run_options)
    assert trimmed == [4096]
