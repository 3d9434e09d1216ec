"""Every category of operators has models that run wholly on a GPU, right and the same in every run."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import dovetail
from tests.cuda.categories import CATEGORIES, HEAD
from tests.cuda.gpu.building import check_on_device
from tests.cuda.inputs import make_inputs

FALLEN = {
    "NonZero": (HEAD, "(float[3,5] x) => (int64[2,n] y) { a = Relu(x) y = NonZero(a) }"),
    "Crop": (
        '<ir_version: 8, opset_import: ["" : 9]> g ',
        "(float[1,2,6,6] x) => (float[1,2,4,4] y) { a = Neg(x) y = Crop<border=[1,1,1,1]>(a) }",
    ),
}
"""What goes to the next provider, in the middle of a model."""
ERROR = 2e-5
"""The largest difference from the reference, in norms."""


@pytest.mark.parametrize("category", list(CATEGORIES))
def test_category(cuda: Any, category: str) -> None:
    for text in CATEGORIES[category].values():
        model = onnx.parser.parse_model(text if text.startswith("<") else HEAD + text)
        check_on_device(model, make_inputs(model), ERROR)


@pytest.mark.parametrize("name", FALLEN)
def test_what_goes_to_the_next_provider_is_right(cuda: Any, name: str) -> None:
    model = onnx.parser.parse_model("".join(FALLEN[name]))
    inputs = make_inputs(model)
    engine = dovetail.compile(model, providers=["cuda", "cpu"])
    assert {step.provider for step in engine.manifest.programs[0].steps if step.kind != "copy"} == {"cuda", "cpu"}
    expected = dovetail.compile(model, providers=["cpu"])(*inputs)
    for _ in range(3):
        np.testing.assert_array_equal(engine(*inputs), expected)


@pytest.mark.parametrize(("order", "step"), [([1, 0, 2], -1), ([2, 1, 0], -2), ([2, 0, 1], -3)])
def test_reversed_elements_of_a_transposed_tensor(cuda: Any, order: list[int], step: int) -> None:
    """The position of an element is a quotient of a difference, which the device would round towards zero."""
    text = f"""(float[4,5,6] x) => (float[k] y) {{ f = Constant<value=int64[1]{{120}}>()
        m1 = Constant<value=int64[1]{{-1}}>() far = Constant<value=int64[1]{{-1000}}>()
        zero = Constant<value=int64[1]{{0}}>() step = Constant<value=int64[1]{{{step}}}>()
        e = Exp(x) t = Transpose<perm={order}>(e) r = Reshape(t, f) s = Slice(r, m1, far, zero, step) y = Neg(s) }}"""
    model = onnx.parser.parse_model(HEAD + text)
    check_on_device(model, make_inputs(model), ERROR)
