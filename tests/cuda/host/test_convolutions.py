"""Convolutions and what follows them: one region each, read and written with channels last, right for every shape."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import dovetail
from dovetail_cuda.compile.convolution import write_convolution
from dovetail_cuda.compile.farm import CompileFarm
from dovetail_cuda.compile.store import KernelStore
from dovetail_cuda.emit.kernels import request_text
from dovetail_cuda.graph.plan import PartitionPlan
from dovetail_cuda.graph.planner import plan_partition
from dovetail_cuda.graph.regions import ConvRegion
from dovetail_cuda.run.packing import LINES, is_recipe, pack
from dovetail_cuda.tune.conv_tiles import list_conv_tiles
from tests.cuda.host.test_numbers import _check
from tests.cuda.images import HEAD, MODELS


@pytest.fixture(autouse=True)
def _few_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes its time: few ways to try, and small images that are convolved as large ones are."""
    monkeypatch.setattr("dovetail_cuda.lower.convolution._SMALL", 1)
    monkeypatch.setattr("dovetail_cuda.lower.convolution._MANY_PIXELS", 64)
    monkeypatch.setattr("dovetail_cuda.tune.conv_tiles._MOST_TILES", 2)
    monkeypatch.setattr("dovetail_cuda.tune.conv_tiles._MOST_EARLY", 1)


def _plan(text: str) -> PartitionPlan:
    return plan_partition(ir.from_proto(onnx.parser.parse_model(HEAD + text)))


@pytest.mark.parametrize("name", list(MODELS))
def test_convolutions_give_what_cpu_gives(paper: Any, name: str) -> None:
    _check(onnx.parser.parse_model(HEAD + MODELS[name]), 2e-4)


def test_half_precision_sums_in_single(paper: Any) -> None:
    _check(onnx.parser.parse_model(HEAD + MODELS["residual"].replace("float[", "float16[")), 5e-2)


@pytest.mark.parametrize(
    ("name", "ops"),
    [
        ("3x3", ["Conv Relu"]),
        ("residual", ["Conv Relu", "Conv Add Relu"]),
        ("stem", ["Conv Relu", "MaxPool"]),
        ("excited", ["Conv HardSwish", "GlobalAveragePool", "Conv Relu", "Conv HardSigmoid", "Mul", "Conv"]),
    ],
)
def test_what_follows_a_convolution_is_part_of_it(name: str, ops: list[str]) -> None:
    assert [" ".join(region.ops) for region in _plan(MODELS[name]).regions if region.ops != ("Expand",)] == ops


def test_results_between_convolutions_lie_with_their_channels_last() -> None:
    first, second = (each for each in _plan(MODELS["residual"]).regions if isinstance(each, ConvRegion))
    assert second.image.strides == (0, 1, 192, 32)
    assert second.image.buffer == first.stored.buffer


def test_filters_with_few_channels_are_packed_in_lines() -> None:
    filters = np.arange(2 * 3 * 2 * 5, dtype=np.float32).reshape(2, 3, 2, 5)
    packed = pack(f"{LINES} 8", [filters]).reshape(2, 2, 8, 4)
    np.testing.assert_array_equal(packed[:, :, :5, :3], filters.transpose(0, 2, 3, 1))
    assert not packed[:, :, 5:].any()
    assert not packed[..., 3].any()
    assert is_recipe(f"{LINES} 8")
    assert not any(is_recipe(text) for text in ("", "lines", "lines -1", "lines 1000", "lines x", "filters 8", "other"))


def test_packed_filters_take_no_name_of_the_network() -> None:
    names, rng = ("w", "w.filters"), np.random.default_rng(3)
    text = "(float[1,8,8,8] x) => (float[1,8,8,8] y) { a = Conv(x, w) b = Conv(a, w) y = Conv(b, @) }"
    model = onnx.parser.parse_model(HEAD + text.replace("@", "other"))
    model.graph.node[2].input[1] = names[1]
    for name in names:
        array = rng.standard_normal((8, 8, 1, 1)).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    plan = plan_partition(ir.from_proto(model))
    found = [region.weight for region in plan.regions if isinstance(region, ConvRegion)]
    assert found == ["w.filters'", "w.filters'", "w.filters.filters"]


def test_splits_are_tried_where_tiles_are_few() -> None:
    plan = _plan(
        "(float16[1,512,7,7] x, float16[512,512,3,3] w) => (float16[1,512,7,7] y) { y = Conv<pads=[1,1,1,1]>(x, w) }"
    )
    region = plan.regions[-1]
    assert isinstance(region, ConvRegion)
    assert any(tile.split > 1 for tile in list_conv_tiles(region.conv, 132))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["3x3", "stem", "long lines", "grouped", "depthwise"])
def test_kernels_compile_for_sm_90(name: str, tmp_path: Any) -> None:
    """Every cut that differs in kind: early or not, split or not."""
    text = MODELS[name].replace("float[", "float16[")
    (region, *_) = (each for each in _plan(text).regions if isinstance(each, ConvRegion))
    first = list_conv_tiles(region.conv, 132)[0]
    cuts = [first, replace(first, starts_early=True, prefetches=True)]
    cuts += [] if region.conv.is_depthwise else [replace(first, split=2)]
    requests = [request_text(write_convolution(region, tile, precision="ieee"), 90) for tile in cuts]
    farm = CompileFarm()
    try:
        with ThreadPoolExecutor(2) as workers:
            made = KernelStore(tmp_path, farm.compile).get_all(requests, workers)
    finally:
        farm.close()
    assert all(code.code.startswith(b"\x7fELF") and not code.scratch_bytes for code in made)
    assert [code.starts_early for code in made[:2]] == [False, True]


def test_filters_of_a_packed_convolution_can_be_replaced(paper: Any) -> None:
    rng = np.random.default_rng(8)
    weights = {"w": rng.standard_normal((16, 8, 3, 3)), "v": rng.standard_normal((16, 1, 3, 3))}
    text = """(float[1,8,8,8] x) => (float[1,16,8,8] y) {
        c = Conv<pads=[1,1,1,1]>(x, w) y = Conv<pads=[1,1,1,1], group=16>(c, v) }"""
    model = onnx.parser.parse_model(HEAD + text)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a.astype(np.float32), n) for n, a in weights.items())
    config = dovetail.BuilderConfig()
    config.providers = ["cuda", "cpu"]
    config.set_flag(dovetail.BuilderFlag.REFIT)
    engine = dovetail.compile(model, config=config)
    refitter, x = dovetail.Refitter(engine), rng.standard_normal((1, 8, 8, 8)).astype(np.float32)
    for number, name in enumerate(("w", "v")):
        array = rng.standard_normal(weights[name].shape).astype(np.float32)
        refitter.set_named_weights(name, array)
        model.graph.initializer[number].CopyFrom(onnx.numpy_helper.from_array(array, name))
    assert refitter.refit_cuda_engine()
    np.testing.assert_allclose(engine(x), dovetail.compile(model, providers=["cpu"])(x), rtol=1e-4, atol=1e-4)
