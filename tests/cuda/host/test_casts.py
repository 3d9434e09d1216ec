"""Casts to integers by kernels of CUDA, in Triton's interpreter."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401 - gives NumPy bfloat16
import numpy as np
import pytest

import dovetail
from tests.cuda.casts import FRACTIONS, TARGETS, make_cast, truncate

SOURCES = {"float": np.float32, "float16": np.float16, "double": np.float64}


@pytest.mark.parametrize("source", SOURCES)
def test_floats_are_truncated_towards_zero(paper: Any, source: str) -> None:
    x = FRACTIONS.astype(SOURCES[source])
    for target in TARGETS:
        engine = dovetail.compile(make_cast(source, target), providers=["cuda", "cpu"])
        assert [step.provider for step in engine.manifest.programs[0].steps] == ["cuda"]
        np.testing.assert_array_equal(engine(x), truncate(x, target), err_msg=target)
