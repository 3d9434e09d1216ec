"""Casts to integers have the same results on a CUDA device and on the host."""

from __future__ import annotations

import numpy as np
import pytest

import dovetail
from tests.cuda.casts import FRACTIONS, TARGETS, make_cast, truncate


@pytest.mark.parametrize("target", TARGETS)
def test_floats_are_truncated_towards_zero_and_keep_their_low_bits(target: str) -> None:
    engine = dovetail.compile(make_cast("float", target), providers=["cuda"])
    np.testing.assert_array_equal(np.asarray(engine(FRACTIONS)), truncate(FRACTIONS, target))
