"""Attention, QAttention, MultiHeadAttention and RotaryEmbedding of com.microsoft against ONNX Runtime.

What its CPU does not run is held to what it does: packed inputs to the same tensors apart, and Attention without a
bias, which crashes there, to one of zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dovetail.errors import InputError
from dovetail.providers.cpu._numeric import Array
from tests.support.ort_node import check_node, run_kernel, run_ort

RNG = np.random.default_rng(17)
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def _floats(*shape: int, dtype: Any = np.float32) -> Array:
    return RNG.standard_normal(shape).astype(dtype)


def _ints(*values: Any) -> Array:
    return np.array(values, np.int32)


def _mask(*shape: int) -> Array:
    return RNG.integers(0, 2, shape).astype(np.int32)


MASKS: dict[str, Any] = {
    "none": lambda total: None,
    "lengths": lambda total: _ints(1, total),
    "ends and starts": lambda total: _ints(2, total, 0, 1),
    "offsets": lambda total: _ints(2, total, 0, 2, 4, 0, 2, 4),
    "keys": lambda total: _mask(2, total),
    "queries and keys": lambda total: _mask(2, 3, total),
    "no keys": lambda total: np.zeros((2, total), np.int32),
    "dummy": lambda total: np.ones((2, 1), np.int32),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("past", [0, 4])
@pytest.mark.parametrize("causal", [0, 1])
def test_attention(mask: str, past: int, causal: int) -> None:
    cache = _floats(2, 2, 2, past, 4) if past else None
    inputs = [_floats(2, 3, 6), _floats(6, 24), _floats(24), MASKS[mask](3 + past), cache]
    check_node("Attention", inputs, {"num_heads": 2, "unidirectional": causal}, outputs=2, **CLOSE)


@pytest.mark.parametrize("bias", [(1, 1), (2, 2), (1, 2), (2, 1)])
def test_attention_with_bias_scale_and_filter(bias: tuple[int, int]) -> None:
    inputs = [_floats(2, 3, 6), _floats(6, 24), _floats(24), _mask(2, 3), None, _floats(*bias, 3, 3)]
    attributes = {"num_heads": 2, "scale": 0.3, "mask_filter_value": -2.0, "unidirectional": 1}
    check_node("Attention", inputs, attributes, **CLOSE)


def test_attention_with_values_of_another_size_and_without_bias() -> None:
    inputs = [_floats(2, 3, 6), _floats(6, 28), _floats(28)]
    check_node("Attention", inputs, {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 12]}, **CLOSE)
    x, weights = _floats(2, 3, 6), _floats(6, 24)
    absent = run_kernel("Attention", [x, weights], {"num_heads": 2})
    zeros = run_kernel("Attention", [x, weights, np.zeros(24, np.float32)], {"num_heads": 2})
    np.testing.assert_array_equal(absent, zeros)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"do_rotary": 1}, "do_rotary"),
        ({"past_present_share_buffer": 1}, "past_present_share_buffer"),
        ({"rotary_embedding_dim": 32}, "rotary_embedding_dim"),
        ({"num_heads": 3}, "num_heads"),
        ({"qkv_hidden_sizes": [8, 8, 4]}, "qkv_hidden_sizes"),
        ({"qkv_hidden_sizes": [4, 8, 12]}, "qkv_hidden_sizes"),
    ],
)
def test_attention_refuses_attributes(change: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError, match=what):
        run_kernel("Attention", [_floats(2, 3, 6), _floats(6, 24), _floats(24)], {"num_heads": 2} | change)


def test_attention_refuses_shapes() -> None:
    inputs: list[Array | None] = [_floats(2, 3, 6), _floats(6, 24), _floats(24), None, None, None, None]
    for place, bad, what in [
        (1, _floats(5, 24), "inner sizes"),
        (2, _floats(23), "bias"),
        (3, _mask(2, 7), "mask_index"),
        (3, np.ones((2, 1, 5, 5), np.int32), "mask_index"),
        (3, _ints(1, 2, 3), "mask_index"),
        (4, _floats(2, 2, 2, 4, 5), "past"),
        (5, _floats(1, 1, 3, 4), "attention_bias"),
        (6, _ints(1), "past_sequence_length"),
    ]:
        broken = list(inputs)
        broken[place] = bad
        with pytest.raises(InputError, match=what):
            run_kernel("Attention", broken, {"num_heads": 2})


@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("past", [0, 4])
@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_quantized_attention(per_column: bool, past: int, kind: Any) -> None:
    x = RNG.integers(0, 256, (2, 3, 6)).astype(np.uint8)
    weights = RNG.integers(0, 64, (6, 24)).astype(kind)
    scale = np.asarray(RNG.random(24 if per_column else ()) * 0.01 + 0.01, np.float32)
    zero = np.full(24 if per_column else (), 31, kind)
    cache = _floats(2, 2, 2, past, 4) if past else None
    shared = [x, weights, _floats(24), np.array(0.02, np.float32), scale]
    attributes = {"num_heads": 2, "unidirectional": 1, "mask_filter_value": -3.0, "scale": 0.3}
    inputs = [*shared, _ints(2, 3 + past), np.array(120, np.uint8), zero, cache]
    check_node("QAttention", inputs, attributes, outputs=2, rtol=1e-3, atol=1e-3)
    check_node("QAttention", shared, {"num_heads": 2}, rtol=1e-3, atol=1e-3)


def test_quantized_attention_refuses() -> None:
    x, weights = np.zeros((2, 3, 6), np.uint8), np.zeros((6, 24), np.int8)
    one = np.array(1, np.float32)
    for attributes, what in (({"do_rotary": 1}, "do_rotary"), ({"past_present_share_buffer": 1}, "share_buffer")):
        with pytest.raises(InputError, match=what):
            run_kernel("QAttention", [x, weights, _floats(24), one, one], {"num_heads": 2} | attributes)
    with pytest.raises(InputError, match="bias"):
        run_kernel("QAttention", [x, weights, _floats(3), one, one], {"num_heads": 2})


MULTI_MASKS = {name: make for name, make in MASKS.items() if name not in ("ends and starts", "dummy")}


@pytest.mark.parametrize("mask", MULTI_MASKS)
@pytest.mark.parametrize("past", [0, 4])
@pytest.mark.parametrize("causal", [0, 1])
def test_multi_head_attention(mask: str, past: int, causal: int) -> None:
    caches = [_floats(2, 2, past, 4), _floats(2, 2, past, 4)] if past else []
    inputs = [_floats(2, 3, 8), _floats(2, 3, 8), _floats(2, 3, 8), None, MASKS[mask](3 + past), None, *caches]
    attributes = {"num_heads": 2, "unidirectional": causal}
    check_node("MultiHeadAttention", inputs, attributes, outputs=4, output_types={3: np.float32}, **CLOSE)


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("form", ["apart", "cache"])
def test_cross_attention(has_bias: bool, form: str) -> None:
    keys = (_floats(2, 5, 8), _floats(2, 5, 12)) if form == "apart" else (_floats(2, 2, 5, 4), _floats(2, 2, 5, 4))
    width = 28 if form == "apart" else 24
    inputs = [_floats(2, 3, 8), *keys, _floats(width) if has_bias else None, _mask(2, 5), _floats(1, 2, 3, 5)]
    attributes = {"num_heads": 2, "scale": 0.2, "mask_filter_value": -2.0}
    check_node("MultiHeadAttention", inputs, attributes, **CLOSE)


@pytest.mark.parametrize("has_bias", [False, True])
def test_packed_inputs_are_the_same_tensors_apart(has_bias: bool) -> None:
    parts = [_floats(2, 3, 2, 4) for _ in range(3)]
    bias = _floats(24) if has_bias else None
    apart = [part.reshape(2, 3, 8) for part in parts]
    expected = check_node("MultiHeadAttention", [*apart, bias], {"num_heads": 2}, outputs=3, **CLOSE)
    for inputs in (
        [np.stack(parts, axis=3), None, None, bias],
        [apart[0], np.stack(parts[1:], axis=3), None, bias],
    ):
        packed = run_kernel("MultiHeadAttention", inputs, {"num_heads": 2}, outputs=3)
        for ours, theirs in zip(packed, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("new", [1, 3])
def test_a_past_in_a_larger_buffer(new: int) -> None:
    buffers = [_floats(2, 2, 9, 4), _floats(2, 2, 9, 4)]
    inputs = [_floats(2, new, 8), _floats(2, new, 8), _floats(2, new, 8), None, None, None, *buffers]
    ours = run_kernel("MultiHeadAttention", [*inputs, _ints(4)], {"num_heads": 2}, outputs=3)
    short = [*inputs[:6], *(buffer[:, :, :4] for buffer in buffers)]
    theirs = run_kernel("MultiHeadAttention", short, {"num_heads": 2}, outputs=3)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5)
    for cache, expected, buffer in zip(ours[1:], theirs[1:], buffers, strict=True):
        np.testing.assert_array_equal(cache[:, :, : 4 + new], expected)
        np.testing.assert_array_equal(cache[:, :, 4 + new :], buffer[:, :, 4 + new :])
    if new == 1:  # ONNX Runtime takes one token at a time, and leaves the rest of its buffers as they were allocated
        whole = run_ort("MultiHeadAttention", [*inputs, _ints(4)], {"num_heads": 2}, outputs=3)
        for mine, reference in zip(ours, whole, strict=True):
            assert reference is not None
            rows = slice(None) if mine.ndim == 3 else (slice(None), slice(None), slice(5))
            np.testing.assert_allclose(mine[rows], reference[rows], **CLOSE)
    for length in (-1, 9 - new + 1):
        with pytest.raises(InputError, match="past_sequence_length"):
            run_kernel("MultiHeadAttention", [*inputs, _ints(length)], {"num_heads": 2})


def test_multi_head_attention_in_halves() -> None:
    inputs = [_floats(2, 3, 8, dtype=np.float16) for _ in range(3)]
    check_node("MultiHeadAttention", inputs, {"num_heads": 2}, outputs=3, rtol=1e-2, atol=5e-3)


def test_multi_head_attention_refuses() -> None:
    q, cache = _floats(2, 3, 8), _floats(2, 2, 4, 4)
    for inputs, what in [
        ([q], "key"),
        ([q, q], "value"),
        ([q, q, _floats(2, 2, 3, 4)], "rank"),
        ([q, q, q[:, :2]], "do not fit"),
        ([q, q[:1], q[:1]], "do not fit"),
        ([q, q, q, _floats(23)], "bias"),
        ([q, q, q, None, _mask(2, 4)], "key_padding_mask"),
        ([q, q, q, None, None, _floats(1, 1, 3, 4)], "attention_bias"),
        ([q, q, q, None, None, None, cache], "together"),
        ([q, q, q, None, None, None, cache, cache[:, :, :3]], "past_value"),
        ([q, q, q, None, None, None, None, None, _ints(1)], "past_sequence_length"),
        ([q, q, q, None, None, None, cache, cache, None, np.zeros((2, 1, 4), np.int32)], "cache_indirection"),
        ([_floats(2, 3, 3, 3, 4)], "query"),
        ([q, _floats(2, 3, 2, 3, 4)], "key"),
    ]:
        with pytest.raises(InputError, match=what):
            run_kernel("MultiHeadAttention", inputs, {"num_heads": 2})
    with pytest.raises(InputError, match="num_heads"):
        run_kernel("MultiHeadAttention", [q, q, q], {"num_heads": 3})


POSITIONS = [np.array([[1, 2, 3], [0, 5, 9]]), np.array([4])]


@pytest.mark.parametrize("positions", POSITIONS, ids=["each", "first"])
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize(
    ("shape", "half", "attributes"),
    [
        ((2, 3, 16), 4, {}),
        ((2, 3, 16), 4, {"num_heads": 2}),
        ((2, 3, 16), 2, {"num_heads": 2, "rotary_embedding_dim": 4}),
        ((2, 2, 3, 8), 4, {}),
        ((2, 2, 3, 8), 2, {"num_heads": 2, "rotary_embedding_dim": 4}),
    ],
)
def test_rotary_embedding(
    positions: Array, interleaved: int, shape: tuple[int, ...], half: int, attributes: dict[str, int]
) -> None:
    inputs = [_floats(*shape), positions, _floats(10, half), _floats(10, half)]
    check_node("RotaryEmbedding", inputs, attributes | {"interleaved": interleaved})


def test_rotary_embedding_of_a_packed_batch_and_in_halves() -> None:
    inputs = [_floats(1, 12, 8), np.arange(12)[None] % 7, _floats(12, 4), _floats(12, 4)]
    check_node("RotaryEmbedding", inputs, {"is_packed_batching": 1})
    halves = [x.astype(np.float16) if x.dtype == np.float32 else x for x in inputs]
    check_node("RotaryEmbedding", halves, rtol=1e-2, atol=5e-3)


@pytest.mark.parametrize("positions", [np.array([8]), np.array([-1]), np.array([[0, 1, 10], [0, 0, 0]])])
def test_positions_outside_the_caches(positions: Array) -> None:
    with pytest.raises(InputError, match="out of range"):
        run_kernel("RotaryEmbedding", [_floats(2, 3, 8), positions, _floats(10, 4), _floats(10, 4)])


@pytest.mark.parametrize(
    ("attributes", "what"),
    [
        ({"scale": 2.0}, "scale"),
        ({"is_packed_batching": 2}, "is_packed_batching"),
        ({"num_heads": 3}, "num_heads"),
        ({"rotary_embedding_dim": 4}, "num_heads"),
        ({"num_heads": 2, "rotary_embedding_dim": 3}, "rotary_embedding_dim"),
        ({"num_heads": 2}, "cos_cache"),
    ],
)
def test_rotary_embedding_refuses(attributes: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError, match=what):
        run_kernel("RotaryEmbedding", [_floats(2, 3, 8), np.array([1]), _floats(10, 4), _floats(10, 4)], attributes)
    with pytest.raises(InputError, match="position_ids"):
        run_kernel("RotaryEmbedding", [_floats(2, 3, 8), np.array([[1, 2, 3]]), _floats(10, 4), _floats(10, 4)])
