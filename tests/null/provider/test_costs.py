"""How operations and bytes are counted."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.provider.costs import Sizes, count_bytes, count_operations


@pytest.mark.parametrize(
    ("op", "inputs", "output", "attributes", "count"),
    [
        ("MatMul", [(8, 64), (64, 16)], (8, 16), {}, 2 * 8 * 64 * 16),
        ("Gemm", [(64, 8), (64, 16)], (8, 16), {"transA": 1}, 2 * 8 * 64 * 16),
        ("Gemm", [(8, 64), (16, 64)], (8, 16), {"transB": 1}, 2 * 8 * 64 * 16),
        ("Conv", [(1, 8, 9, 9), (4, 8, 3, 3)], (1, 4, 7, 7), {}, 2 * 4 * 49 * 8 * 9),
        ("Conv", [(1, 8, 9, 9), (8, 1, 3, 3)], (1, 8, 7, 7), {"group": 8}, 2 * 8 * 49 * 9),
        ("ConvTranspose", [(1, 8, 4, 4), (8, 2, 2, 2)], (1, 2, 8, 8), {}, 2 * 8 * 16 * 8),
        ("Attention", [(1, 2, 5, 4), (1, 2, 7, 4), (1, 2, 7, 4)], (1, 2, 5, 4), {}, 4 * 2 * 5 * 4 * 7),
        ("LSTM", [(9, 2, 5), (2, 12, 5), (2, 12, 3)], (9, 2, 2, 3), {}, 2 * 9 * 2 * 2 * 12 * (5 + 3)),
        ("GRU", [(9, 2, 5), (1, 9, 5), (1, 9, 3), None], (9, 1, 2, 3), {}, 2 * 9 * 2 * 9 * (5 + 3)),
        ("RNN", [(9, 2, 5), (1, 3, 5)], (9, 1, 2, 3), {}, None),
        ("MaxPool", [(1, 2, 8, 8)], (1, 2, 4, 4), {"kernel_shape": [3, 3]}, 32 * 9),
        ("Reshape", [(4,), (1,)], (2, 2), {}, 0),
        ("Add", [(4, 1), (1, 3)], (4, 3), {}, 12),
        ("ReduceSum", [(4, 3)], (), {}, 12),
        ("Relu", [None], None, {}, None),
        ("MatMul", [], (2, 2), {}, None),
        ("Conv", [(1, 1, 4, 4)], (1, 1, 4, 4), {}, None),
        ("MaxPool", [(1, 1, 4, 4)], (1, 1, 2, 2), {"kernel_shape": 3}, None),
        ("Attention", [(4,), (4,)], (4,), {}, None),
        ("MatMul", [None, (4, 4)], (2, 4), {}, None),
        ("SomethingElse", [(4,)], (4,), {}, None),
    ],
)
def test_operations(op: str, inputs: list[Sizes], output: Sizes, attributes: dict[str, int], count: int | None) -> None:
    assert count_operations(op, inputs, output, attributes) == count


@given(st.lists(st.integers(0, 2**40), max_size=6), st.sampled_from(["float32", "int4", "bfloat16", "bool", "int64"]))
def test_bytes_are_those_of_the_elements_rounded_up(sizes: list[int], dtype: str) -> None:
    bits = {"float32": 32, "int4": 4, "bfloat16": 16, "bool": 8, "int64": 64}[dtype]
    assert count_bytes(dtype, sizes) == math.ceil(math.prod(sizes) * bits / 8) or math.prod(sizes) > 2**50


@pytest.mark.parametrize(("dtype", "sizes"), [("object", (2,)), ("float32", None), ("float32", (2, -1)), ("", (2,))])
def test_what_is_not_known_has_no_bytes(dtype: str, sizes: Sizes) -> None:
    assert count_bytes(dtype, sizes) is None
