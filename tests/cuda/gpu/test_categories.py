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
