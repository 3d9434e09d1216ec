"""Convolutions on a GPU: right in every form and type, the same in every run, whichever way the tuner takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from tests.cuda.gpu.building import check_on_device
from tests.cuda.images import HEAD, MODELS

ERRORS = {"float": 1e-5, "float16": 2e-3}
"""The largest difference from the reference, in norms."""
LARGE = {
    "many splits": """({t}[1,512,7,7] x, {t}[512,512,3,3] w, {t}[512] b) => ({t}[1,512,7,7] y) {{
        c = Conv<pads=[1,1,1,1]>(x, w, b) y = Relu(c) }}""",
    "stem": """({t}[2,3,224,224] x, {t}[64,3,7,7] w, {t}[64] b) => ({t}[2,64,56,56] y) {{
        c = Conv<pads=[3,3,3,3], strides=[2,2]>(x, w, b) r = Relu(c)
        y = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(r) }}""",
    "bottleneck": """({t}[1,256,56,56] x, {t}[64,256,1,1] u, {t}[64,64,3,3] v, {t}[256,64,1,1] w) =>
        ({t}[1,256,56,56] y) {{
        a = Conv(x, u) b = Relu(a) c = Conv<pads=[1,1,1,1]>(b, v) d = Relu(c) e = Conv(d, w) f = Add(e, x)
        y = Relu(f) }}""",
    "depthwise": """({t}[1,96,56,56] x, {t}[96,1,7,7] w, {t}[96] b) => ({t}[1,96,56,56] y) {{
        y = Conv<pads=[3,3,3,3], group=96>(x, w, b) }}""",
}


def _make_inputs(model: onnx.ModelProto) -> list[Any]:
    """Filters are scaled so that sums stay of one size."""
    rng, made = np.random.default_rng(2), []
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = [dim.dim_value for dim in kind.shape.dim]
        scale = np.prod(shape[1:]) ** -0.5 if value.name != "x" and len(shape) > 1 else 1.0
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        made.append((rng.standard_normal(shape) * scale).astype(dtype))
    return made


@pytest.mark.parametrize("name", list(MODELS))
def test_small_images(cuda: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kind of convolution, by a few ways each."""
    monkeypatch.setattr("dovetail_cuda.tune.conv_tiles._MOST_TILES", 2)
    monkeypatch.setattr("dovetail_cuda.tune.conv_tiles._MOST_EARLY", 1)
    monkeypatch.setattr("dovetail_cuda.lower.convolution._SMALL", 1)
    _check(MODELS[name].replace("float[", "float16["), ERRORS["float16"])


@pytest.mark.parametrize(("name", "kind"), [*((name, "float16") for name in LARGE), ("bottleneck", "float")])
def test_images_as_networks_have_them(cuda: Any, name: str, kind: str) -> None:
    _check(LARGE[name].format(t=kind), ERRORS[kind])


def _check(text: str, error: float) -> None:
    model = onnx.parser.parse_model(HEAD + text)
    check_on_device(model, _make_inputs(model), error)
