"""Every category of operators has models that run wholly on CUDA, here in Triton's interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import dovetail
from tests.cuda.categories import CATEGORIES, HEAD
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
