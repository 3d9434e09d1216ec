"""Every category of operators has models that run wholly on CUDA, here in Triton's interpreter."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import dovetail
from dovetail.errors import BuildError
from dovetail.network.importer.importer import import_model
from dovetail.passes import standard_passes
from dovetail.passes.base import Pass, run_passes
from dovetail.passes.layout import LayoutPass
from dovetail_cuda.compile.farm import CompileFarm
from dovetail_cuda.compile.request import KernelRequest
from dovetail_cuda.compile.source import Tile, write_kernel
from dovetail_cuda.compile.store import KernelStore
from dovetail_cuda.emit.kernels import request_text
from dovetail_cuda.graph.planner import plan_partition
from dovetail_cuda.graph.regions import ElementRegion
from dovetail_cuda.lower.registry import load_registry
from tests.cuda.categories import CATEGORIES, HEAD
from tests.cuda.channels_last import HEAD as LAST_HEAD
from tests.cuda.channels_last import MODELS as LAST_MODELS
from tests.cuda.host.test_numbers import _check

_OLD = '<ir_version: 8, opset_import: ["" : 9]> g '
PAIRS = [(category, name) for category, models in CATEGORIES.items() for name in models]


@pytest.mark.parametrize(("category", "name"), PAIRS)
def test_category(paper: Any, category: str, name: str) -> None:
    text = CATEGORIES[category][name]
    _check(onnx.parser.parse_model(text if text.startswith("<") else HEAD + text), 2e-5)


def test_what_is_counted_by_its_data_goes_to_the_next_provider(paper: Any) -> None:
    model = onnx.parser.parse_model(HEAD + "(float[3,5] x) => (int64[2,n] y) { a = Relu(x) y = NonZero(a) }")
    engine = dovetail.compile(model, providers=["cuda", "cpu"])
    assert [step.provider for step in engine.manifest.programs[0].steps if step.kind != "copy"] == ["cuda", "cpu"]
    x = np.random.default_rng(2).standard_normal((3, 5)).astype(np.float32)
    np.testing.assert_array_equal(engine(x), np.array(np.nonzero(np.maximum(x, 0))))


def test_crop_goes_to_the_next_provider(paper: Any) -> None:
    text = _OLD + "(float[1,2,6,6] x) => (float[1,2,4,4] y) { a = Neg(x) y = Crop<border=[1,1,1,1]>(a) }"
    engine = dovetail.compile(onnx.parser.parse_model(text), providers=["cuda", "cpu"])
    x = np.random.default_rng(2).standard_normal((1, 2, 6, 6)).astype(np.float32)
    np.testing.assert_array_equal(engine(x), -x[:, :, 1:5, 1:5])
    assert {"cuda", "cpu"} == {step.provider for step in engine.manifest.programs[0].steps if step.kind != "copy"}


EXTRA = {
    "sort": "(float[3,9] x) => (float[3,4] y, int64[3,4] i) { k = Constant<value=int64[1]{4}>() y, i = TopK(x, k) }",
    "sort of halves": """(float16[3,9] x) => (float16[3,4] y, int64[3,4] i) {
        k = Constant<value=int64[1]{4}>() y, i = TopK<largest=0>(x, k) }""",
    "cubic": """(float[1,2,4,4] x) => (float[1,2,7,7] y) { s = Constant<value=int64[4]{1,2,7,7}>()
        y = Resize<mode="cubic", exclude_outside=1>(x, , , s) }""",
    "nearest": """(float[1,2,5,4] x) => (float[1,2,3,7] y) { s = Constant<value=int64[4]{1,2,3,7}>()
        y = Resize<mode="nearest">(x, , , s) }""",
    "grid": """(float[1,2,4,5] x, float[1,3,3,2] z) => (float[1,2,3,3] y) {
        y = GridSample<mode="cubic", padding_mode="reflection">(x, z) }""",
    "grid at borders": """(float16[1,2,4,5] x, float16[1,3,3,2] z) => (float16[1,2,3,3] y) {
        y = GridSample<mode="nearest", padding_mode="border">(x, z) }""",
    "scatter": """(float[4,5] x, int64[2,5] i, float[2,5] u) => (float[4,5] y) {
        y = ScatterElements<axis=0, reduction="max">(x, i, u) }""",
    "scatter of bytes": "(uint8[5,3] x, int64[4,1] i, uint8[4,3] u) => (uint8[5,3] y) { y = ScatterND(x, i, u) }",
    "LSTM": """(float[3,2,4] x, float[1,20,4] w, float[1,20,5] r, float[1,40] b, float[1,15] p) =>
        (float[3,1,2,5] y, float[1,2,5] h, float[1,2,5] c) {
        y, h, c = LSTM<hidden_size=5, clip=2.0>(x, w, r, b, , , , p) }""",
    "GRU": """(float16[3,2,4] x, float16[1,15,4] w, float16[1,15,5] r) => (float16[3,1,2,5] y) {
        y = GRU<hidden_size=5, linear_before_reset=1, activations=["HardSigmoid", "Softsign"]>(x, w, r) }""",
    "loss": """(float[3,5] x, int64[3] l, float[5] w) => (float s, float[3,5] p) {
        s, p = SoftmaxCrossEntropyLoss<ignore_index=1>(x, l, w) }""",
    "range": "(float[3,5] x) => (uint8[3,5] y, float s, uint8 z) { y, s, z = DynamicQuantizeLinear(x) }",
    "quantized": """(uint8[3,8] x, int8[8,4] w) => (uint8[3,4] y) { a = Constant<value=float{0.1}>()
        p = Constant<value=uint8{3}>() n = Constant<value=int8{1}>() y = QLinearMatMul(x, a, p, w, a, n, a, p) }""",
    "local": "(float[1,7,3,3] x) => (float[1,7,3,3] y) { y = LRN<size=3>(x) }",
    "turned": "(float[4,3] x, int64[3] l) => (float[4,3] y) { y = ReverseSequence(x, l) }",
    "affine": """(float[1,2,3] x) => (float[1,4,5,2] y) { s = Constant<value=int64[4]{1,1,4,5}>()
        y = AffineGrid(x, s) }""",
}
NEW = {
    "shift": (28, '(int8[3,5] x, int8[3,5] z) => (int8[3,5] y) { y = BitShift<direction="RIGHT">(x, z) }'),
    "bits": (26, "(float[3,5] x) => (int32[3,5] y) { y = BitCast<to=6>(x) }"),
    "causal": (
        27,
        """(float[1,3,6] x, float[3,1,4] w, float[3] b) => (float[1,3,6] y, float[1,3,3] s) {
        y, s = CausalConvWithState<activation="silu">(x, w, b) }""",
    ),
    "linear": (
        27,
        """(float[1,3,8] q, float[1,3,8] k, float[1,3,8] v, float[1,3,8] d, float[1,3,2] b) =>
        (float[1,3,8] y, float[1,2,4,4] s) {
        y, s = LinearAttention<q_num_heads=2, kv_num_heads=2>(q, k, v, , d, b) }""",
    ),
    "cache": (
        24,
        """(float[2,2,5,3] x, float[2,2,1,3] u, int64[2] i) => (float[2,2,5,3] y) {
        y = TensorScatter<mode="circular">(x, u, i) }""",
    ),
}


def _clean(text: str, *passes: Pass) -> ir.Model:
    """A model as the provider gets it."""
    model = import_model(onnx.parser.parse_model(text))
    run_passes(model, [*standard_passes(keep=frozenset()), *passes])
    return model


def _make_layout_pass() -> LayoutPass:
    return LayoutPass(accepts=lambda *operator: load_registry().find(*operator) is not None, within=lambda node: True)


def _list_requests() -> dict[str, KernelRequest]:
    """The kernels of all models, each once."""
    texts = [
        text if text.startswith("<") else HEAD + text for models in CATEGORIES.values() for text in models.values()
    ]
    texts += [HEAD + text for text in EXTRA.values()]
    texts += [f'<ir_version: 13, opset_import: ["" : {opset}]> g {text}' for opset, text in NEW.values()]
    models = [_clean(text) for text in texts]
    models += [_clean(LAST_HEAD + text, _make_layout_pass()) for _, text in LAST_MODELS.values()]
    found = {}
    for model in models:
        for region in plan_partition(model).regions:
            if isinstance(region, ElementRegion):
                kernel = write_kernel(region, Tile(rows=16, columns=16 if region.rows else 1))
                request = request_text(kernel, 90)
                found[request.make_key()] = request
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_kernels_of_all_categories_compile_for_sm_90(tmp_path: Path) -> None:
    """What is interpreted is Python; a compiler is stricter about types."""
    requests = list(_list_requests().values())
    farm = CompileFarm()
    try:
        with ThreadPoolExecutor(2) as workers:
            made = KernelStore(tmp_path, farm.compile).try_all(requests, workers)
    finally:
        farm.close()
    wrong = [
        f"{code}\n{request.text}" for request, code in zip(requests, made, strict=True) if isinstance(code, BuildError)
    ]
    assert not wrong, "\n".join(wrong)
