"""Types chosen by a build for CUDA, here in Triton's interpreter: near fp32, and nothing left to another provider."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cuda.precision_cases import ERRORS, PAIRS, check_precision


@pytest.mark.parametrize(("model", "kind"), PAIRS)
def test_a_type_is_near_fp32(paper: Any, model: str, kind: str) -> None:
    error, _ = check_precision(model, kind)
    assert 0 < error < ERRORS[kind]
