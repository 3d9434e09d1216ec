"""Convolutions and what follows them: one region each, read and written with channels last, right for every shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import dovetail
from dovetail_cuda.graph.plan import PartitionPlan
from dovetail_cuda.graph.planner import plan_partition
from dovetail_cuda.graph.regions import ConvRegion
from dovetail_cuda.run.packing import LINES, is_recipe, pack
from dovetail_cuda.tune.conv_tiles import list_conv_tiles
from tests.cuda.host.test_numbers import HEAD, _check

MODELS = {
    "3x3": """(float[1,8,9,7] x, float[16,8,3,3] w, float[16] b) => (float[1,16,9,7] y) {
        c = Conv<pads=[1,1,1,1]>(x, w, b) y = Relu(c) }""",
    "strides": """(float[2,8,11,9] x, float[24,8,3,3] w) => (float[2,24,5,5] y) {
        y = Conv<pads=[0,1,1,1], strides=[2,2]>(x, w) }""",
    "dilated": """(float[1,8,12,12] x, float[16,8,3,3] w) => (float[1,16,8,8] y) {
        c = Conv<dilations=[2,2]>(x, w) y = HardSwish(c) }""",
    "stem": """(float[1,3,17,19] x, float[16,3,7,7] w, float[16] b) => (float[1,16,5,5] y) {
        c = Conv<pads=[3,3,3,3], strides=[2,2]>(x, w, b) r = Relu(c)
        y = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(r) }""",
    "long lines": """(float[1,3,64,65] x, float[16,3,7,5] w) => (float[1,16,32,33] y) {
        y = Conv<pads=[3,2,3,2], strides=[2,2]>(x, w) }""",
    "groups": """(float[1,16,8,8] x, float[24,4,3,3] w) => (float[1,24,8,8] y) {
        y = Conv<pads=[1,1,1,1], group=4>(x, w) }""",
    "depthwise": """(float[1,24,9,9] x, float[24,1,5,5] w, float[24] b) => (float[1,24,5,5] y) {
        c = Conv<pads=[2,2,2,2], strides=[2,2], group=24>(x, w, b) y = HardSwish(c) }""",
    "two for a channel": """(float[1,8,16,16] x, float[16,1,3,3] w) => (float[1,16,16,16] y) {
        y = Conv<pads=[1,1,1,1], group=8>(x, w) }""",
    "one dimension": """(float[2,8,40] x, float[32,8,5] w, float[32] b) => (float[2,32,38] y) {
        c = Conv<pads=[1,1]>(x, w, b) y = Tanh(c) }""",
    "residual": """(float[1,32,9,8] x, float[32,32,3,3] w, float[32,32,1,1] v, float[32] b) => (float[1,32,9,8] y) {
        a = Conv<pads=[1,1,1,1]>(x, w, b) r = Relu(a) c = Conv(r, v) s = Add(c, x) y = Relu(s) }""",
    "two branches": """(float[1,8,8,8] x, float[16,8,1,1] w, float[16,8,3,3] v) => (float[1,16,8,8] y) {
        a = Conv(x, w) b = Conv<pads=[1,1,1,1]>(x, v) y = Add(a, b) }""",
    "several readers": """(float[1,8,16,16] x, float[8,8,3,3] w) => (float[1,8,16,16] y, float[1,8,16,16] z) {
        c = Conv<pads=[1,1,1,1]>(x, w) y = Exp(c) z = Neg(c) }""",
    "excited": """(float[1,16,8,8] x, float[16,1,3,3] w, float[8,16,1,1] s, float[16,8,1,1] e, float[8,16,1,1] p) =>
        (float[1,8,8,8] y) {
        d = Conv<pads=[1,1,1,1], group=16>(x, w) h = HardSwish(d) g = GlobalAveragePool(h) a = Conv(g, s) r = Relu(a)
        b = Conv(r, e) f = HardSigmoid(b) m = Mul(h, f) y = Conv(m, p) }""",
    "channels last": """(float[1,16,8,8] x, float[16,1,7,7] w, float[16] g, float[16] b, float[16,64] p, float[64,16] q,
        float[16,1,1] s, float[32,16,2,2] d) => (float[1,32,4,4] y) {
        c = Conv<pads=[3,3,3,3], group=16>(x, w) t = Transpose<perm=[0,2,3,1]>(c) n = LayerNormalization(t, g, b)
        h = MatMul(n, p) a = Gelu<approximate="tanh">(h) k = MatMul(a, q) u = Transpose<perm=[0,3,1,2]>(k)
        z = Mul(u, s) r = Add(z, x) y = Conv<strides=[2,2]>(r, d) }""",
    "pads": """(float[1,8,8,8] x, float[16,8,3,3] w) => (float[1,16,8,9] y) {
        k = Constant<value=int64[8]{0,0,1,1,0,0,1,2}>() p = Pad(x, k) y = Conv(p, w) }""",
    "pooled": """(float[2,16,8,8] x, float[16,16,3,3] w) => (float[2,16,1,1] y, float[2,16,4,4] z) {
        c = Conv<pads=[1,1,1,1]>(x, w) y = GlobalAveragePool(c)
        z = AveragePool<kernel_shape=[2,2], strides=[2,2]>(c) }""",
}


@pytest.fixture(autouse=True)
def _few_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes its time."""
    monkeypatch.setattr("dovetail_cuda.tune.conv_tiles._MOST_TILES", 3)


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
    assert second.image.strides == (0, 1, 256, 32)
    assert second.image.buffer == first.stored.buffer


def test_filters_with_few_channels_are_packed_in_lines() -> None:
    filters = np.arange(2 * 3 * 2 * 5, dtype=np.float32).reshape(2, 3, 2, 5)
    packed = pack(f"{LINES} 8", [filters]).reshape(2, 2, 8, 4)
    np.testing.assert_array_equal(packed[:, :, :5, :3], filters.transpose(0, 2, 3, 1))
    assert not packed[:, :, 5:].any()
    assert not packed[..., 3].any()
    assert is_recipe(f"{LINES} 8")
    assert not any(is_recipe(text) for text in ("", "lines", "lines -1", "lines 1000", "lines x", "filters 8", "other"))


def test_splits_are_tried_where_tiles_are_few() -> None:
    plan = _plan(
        "(float16[1,512,7,7] x, float16[512,512,3,3] w) => (float16[1,512,7,7] y) { y = Conv<pads=[1,1,1,1]>(x, w) }"
    )
    region = plan.regions[-1]
    assert isinstance(region, ConvRegion)
    assert any(tile.split > 1 for tile in list_conv_tiles(region.conv, 132))


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
