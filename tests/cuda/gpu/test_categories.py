"""Every category of operators has models that run wholly on a GPU, right and the same in every run."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

from tests.cuda.categories import CATEGORIES, HEAD
from tests.cuda.gpu.test_attention import _check
from tests.cuda.inputs import make_inputs

ERROR = 2e-5
"""The largest difference from the reference, in norms."""


@pytest.mark.parametrize("category", list(CATEGORIES))
def test_category(cuda: Any, category: str) -> None:
    for text in CATEGORIES[category].values():
        model = onnx.parser.parse_model(text if text.startswith("<") else HEAD + text)
        _check(model, make_inputs(model), ERROR)
