"""GroupQueryAttention of com.microsoft against ONNX Runtime.

Rows of a cache that hold no position are left as they were allocated there, and what padding queries give depends on
the path it takes; so caches are compared where they are filled, and results where samples have tokens. Normalised
queries and keys, which its CPU refuses, are held to the same op after SimplifiedLayerNormalization.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from dovetail.errors import InputError
from dovetail.providers.cpu._numeric import Array
from tests.support.ort_node import compare, run_kernel, run_ort

RNG = np.random.default_rng(19)
OP = "GroupQueryAttention"
HEADS = {"num_heads": 4, "kv_num_heads": 2}
SIZE = 32


def _floats(*shape: int, dtype: Any = np.float32) -> Array:
    return RNG.standard_normal(shape).astype(dtype)


def _ints(*values: int) -> Array:
    return np.array(values, np.int32)


def _new(batch: int, length: int, dtype: Any = np.float32) -> list[Array | None]:
    """Queries, keys and values."""
    return [_floats(batch, length, heads * SIZE, dtype=dtype) for heads in (4, 2, 2)]


def _check(
    inputs: Sequence[Array | None],
    attributes: dict[str, Any] | None = None,
    *,
    outputs: int = 3,
    filled: Sequence[int] | None = None,
    close: float = 1e-4,
) -> tuple[Array, ...]:
    """Compare every output; caches in the first ``filled`` rows of each sample, which are its length by default."""
    given = HEADS | (attributes or {})
    theirs = run_ort(OP, inputs, given, outputs=outputs)
    ours = run_kernel(OP, inputs, given, outputs=outputs)
    assert inputs[0] is not None
    assert inputs[5] is not None
    lengths = (inputs[5] + 1).tolist()
    queries = inputs[0].shape[1]
    for index, (mine, expected) in enumerate(zip(ours, theirs, strict=True)):
        assert expected is not None
        assert (mine.shape, mine.dtype) == (expected.shape, expected.dtype)
        for sample, total in enumerate(lengths):
            where: Any = (sample, slice(min(total, queries)))
            if index in (1, 2):
                where = (sample, slice(None), slice(filled[sample] if filled else total))
            elif index == 3:
                where = (sample, slice(None), slice(min(total, queries)), slice(total))
            compare(mine[where], expected[where], rtol=close, atol=close, what=f"output {index}")
    return ours


PROMPTS: dict[str, Any] = {
    "no cache": lambda: (None, None),
    "empty cache": lambda: (_floats(2, 2, 0, SIZE), _floats(2, 2, 0, SIZE)),
    "buffer": lambda: (_floats(2, 2, 8, SIZE), _floats(2, 2, 8, SIZE)),
}


@pytest.mark.parametrize("cache", PROMPTS)
@pytest.mark.parametrize("lengths", [(5, 5), (5, 3), (1, 5)])
@pytest.mark.parametrize("attributes", [{}, {"local_window_size": 2}, {"causal": 0}], ids=["causal", "window", "both"])
def test_prompt(cache: str, lengths: tuple[int, int], attributes: dict[str, int]) -> None:
    last = _ints(*(length - 1 for length in lengths))
    _check([*_new(2, 5), *PROMPTS[cache](), last, _ints(5)], attributes)


@pytest.mark.parametrize("lengths", [(5, 5), (5, 3), (1, 5)])
@pytest.mark.parametrize("room", [4, 9])
@pytest.mark.parametrize("window", [-1, 2])
def test_one_token_after_a_past(lengths: tuple[int, int], room: int, window: int) -> None:
    caches = [_floats(2, 2, room, SIZE), _floats(2, 2, room, SIZE)]
    last = _ints(*(length - 1 for length in lengths))
    _check([*_new(2, 1), *caches, last, np.array(5, np.int32)], {"local_window_size": window})


@pytest.mark.parametrize("room", [4, 9])
@pytest.mark.parametrize("window", [-1, 3])
def test_several_tokens_after_a_past(room: int, window: int) -> None:
    caches = [_floats(1, 2, room, SIZE), _floats(1, 2, room, SIZE)]
    _check([*_new(1, 3), *caches, _ints(6), _ints(7)], {"local_window_size": window})


def test_packed_input_is_the_same_tensors_apart() -> None:
    parts = _new(2, 3)
    packed = np.concatenate([part for part in parts if part is not None], axis=2)
    ours = _check([packed, None, None, None, None, _ints(2, 2), _ints(3)])
    apart = run_kernel(OP, [*parts, None, None, _ints(2, 2), _ints(3)], HEADS, outputs=3)
    for left, right in zip(ours, apart, strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("half", [SIZE // 2, SIZE // 4])
@pytest.mark.parametrize("phase", ["prompt", "token", "tokens"])
def test_rotation(interleaved: int, half: int, phase: str) -> None:
    batch, length, room, last = {
        "prompt": (2, 3, 0, (2, 1)),
        "token": (2, 1, 5, (5, 2)),
        "tokens": (1, 3, 5, (7,)),
    }[phase]
    caches = [_floats(batch, 2, room, SIZE), _floats(batch, 2, room, SIZE)]
    tables = [_floats(12, half), _floats(12, half)]
    inputs = [*_new(batch, length), *caches, _ints(*last), _ints(max(last) + 1), *tables]
    _check(inputs, {"do_rotary": 1, "rotary_interleaved": interleaved})


def test_rotation_by_given_positions() -> None:
    tables = [_floats(12, SIZE // 2), _floats(12, SIZE // 2)]
    caches = [_floats(2, 2, 5, SIZE), _floats(2, 2, 5, SIZE)]
    positions = np.array([[3], [7]])
    _check([*_new(2, 1), *caches, _ints(5, 2), _ints(6), *tables, positions], {"do_rotary": 1})
    for bad in (np.array([[3], [12]]), np.array([[-1], [0]])):
        with pytest.raises(InputError, match="out of range"):
            run_kernel(OP, [*_new(2, 1), *caches, _ints(5, 2), _ints(6), *tables, bad], HEADS | {"do_rotary": 1})


@pytest.mark.parametrize("attributes", [{"softcap": 1.5}, {"scale": 0.1}, {"smooth_softmax": 1}, {"smooth_softmax": 0}])
def test_softmax_and_scale(attributes: dict[str, Any]) -> None:
    _check([*_new(2, 4), None, None, _ints(3, 2), _ints(4)], attributes)


@pytest.mark.parametrize("bias", [(1, 1), (2, 4), (1, 4), (2, 1)])
def test_bias_and_sink(bias: tuple[int, int]) -> None:
    inputs = [*_new(2, 4), None, None, _ints(3, 2), _ints(4), None, None, None]
    _check([*inputs, _floats(*bias, 4, 4)])
    _check([*inputs, _floats(*bias, 4, 4), _floats(4)], {"softcap": 2.0})
    caches = [_floats(2, 2, 5, SIZE), _floats(2, 2, 5, SIZE)]
    _check([*_new(2, 1), *caches, _ints(5, 2), _ints(6), None, None, None, _floats(*bias, 1, 6)])


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("window", [-1, 2])
def test_scores_and_weights(mode: int, window: int) -> None:
    attributes = {"qk_output": mode, "local_window_size": window, "softcap": 1.0}
    _check([*_new(2, 4), None, None, _ints(3, 2), _ints(4)], attributes, outputs=4)
    caches = [_floats(2, 2, 7, SIZE), _floats(2, 2, 7, SIZE)]
    _check([*_new(2, 1), *caches, _ints(5, 2), _ints(6)], attributes, outputs=4)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("kind", ["PER_TENSOR", "PER_CHANNEL"])
@pytest.mark.parametrize("phase", ["prompt", "token"])
def test_quantized_cache(bits: int, kind: str, phase: str) -> None:
    width, dtype = (SIZE, np.int8) if bits == 8 else (SIZE // 2, np.uint8)
    caches = [RNG.integers(-9, 9, (2, 2, 6, width)).astype(np.int8).view(dtype) for _ in range(2)]
    shape = (1,) if kind == "PER_TENSOR" else (1, 2, 1, SIZE)
    scales = [(RNG.random(shape) * 0.1 + (0.05 if bits == 8 else 0.4)).astype(np.float32) for _ in range(2)]
    length, last = (3, (2, 1)) if phase == "prompt" else (1, (4, 2))
    inputs = [*_new(2, length), *caches, _ints(*last), _ints(max(last) + 1), *[None] * 5, *scales]
    attributes = {"k_quant_type": kind, "v_quant_type": kind, "kv_cache_bit_width": bits}
    _check(inputs, attributes, close=2e-3)


def test_halves() -> None:
    inputs = [*_new(2, 3, np.float16), None, None, _ints(2, 1), _ints(3)]
    _check(inputs, close=5e-3)
    caches = [_floats(2, 2, 5, SIZE, dtype=np.float16) for _ in range(2)]
    _check([*_new(2, 1, np.float16), *caches, _ints(5, 2), _ints(6)], close=5e-3)


def _held(total: int, capacity: int, window: int) -> int:
    step = capacity - window + 1
    return total if total <= capacity else total - step * -(-(total - capacity) // step)


@pytest.mark.parametrize("capacity", [3, 5])
@pytest.mark.parametrize("has_bias", [False, True])
def test_sliding_cache(capacity: int, has_bias: bool) -> None:
    """A prompt and eight tokens, each step with the cache of the last one."""
    attributes = {"sliding_window_cache": 1, "local_window_size": 3}
    caches: list[Array] = [np.zeros((2, 2, capacity, SIZE), np.float32) for _ in range(2)]
    lengths = [4, 4]
    for step in range(9):
        new = 4 if step == 0 else 1
        if step:
            lengths = [length + 1 for length in lengths]
        total = max(lengths)
        bias = _floats(1, 4, new, total) if has_bias else None
        last = _ints(*(length - 1 for length in lengths))
        filled = [_held(length, capacity, 3) for length in lengths]
        inputs = [*_new(2, new), *caches, last, _ints(total), None, None, None, bias]
        _, *present = _check(inputs, attributes, filled=filled)
        caches = list(present)


def test_samples_of_several_lengths_in_a_sliding_cache() -> None:
    attributes = {"sliding_window_cache": 1, "local_window_size": 3}
    caches = [_floats(2, 2, 5, SIZE) for _ in range(2)]
    _check([*_new(2, 1), *caches, _ints(8, 5), _ints(9)], attributes, filled=[_held(9, 5, 3), _held(6, 5, 3)])
    ragged = [*_new(2, 4), *caches, _ints(3, 1), _ints(4)]
    sliding = run_kernel(OP, ragged, HEADS | attributes, outputs=3)
    whole = run_kernel(OP, ragged, HEADS | {"local_window_size": 3}, outputs=3)
    for left, right in zip(sliding, whole, strict=True):
        where: Any = slice(2) if left.ndim == 3 else (slice(None), slice(2))
        np.testing.assert_allclose(left[1][where], right[1][where], rtol=1e-5, atol=1e-6)


def test_several_tokens_into_a_sliding_cache() -> None:
    attributes = {"sliding_window_cache": 1, "local_window_size": 3}
    caches = [_floats(1, 2, 4, SIZE) for _ in range(2)]
    _check([*_new(1, 6), *caches, _ints(8), _ints(9)], attributes, filled=[_held(9, 4, 3)])


def test_a_sliding_cache_gives_what_a_whole_one_gives() -> None:
    whole: list[Array] = [np.zeros((1, 2, 9, SIZE), np.float32) for _ in range(2)]
    sliding: list[Array] = [np.zeros((1, 2, 4, SIZE), np.float32) for _ in range(2)]
    for position in range(9):
        new = _new(1, 1)
        lengths = [_ints(position), _ints(position + 1)]
        left = run_kernel(OP, [*new, *whole, *lengths], HEADS | {"local_window_size": 3}, outputs=3)
        attributes = HEADS | {"local_window_size": 3, "sliding_window_cache": 1}
        right = run_kernel(OP, [*new, *sliding, *lengths], attributes, outputs=3)
        np.testing.assert_allclose(left[0], right[0], rtol=1e-5, atol=1e-6)
        whole, sliding = list(left[1:]), list(right[1:])


def test_normalized_queries_and_keys() -> None:
    q, k, v = _new(2, 3)
    weights = [_floats(SIZE), _floats(SIZE)]
    assert q is not None
    assert k is not None
    normal = [
        run_ort("SimplifiedLayerNormalization", [x.reshape(2, 3, -1, SIZE), w], {"epsilon": 1e-3}, domain="")[0]
        for x, w in ((q, weights[0]), (k, weights[1]))
    ]
    flat = [x.reshape(2, 3, -1) for x in normal if x is not None]
    expected = run_ort(OP, [*flat, v, None, None, _ints(2, 2), _ints(3)], HEADS, outputs=3)
    inputs = [q, k, v, None, None, _ints(2, 2), _ints(3), *[None] * 7, *weights]
    ours = run_kernel(OP, inputs, HEADS | {"qk_norm_epsilon": 1e-3}, outputs=3)
    for mine, theirs in zip(ours, expected, strict=True):
        assert theirs is not None
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


CACHE = _floats(2, 2, 4, SIZE)
Q, K, V = _new(2, 1)
TOKEN: list[Array | None] = [Q, K, V, CACHE, CACHE, _ints(4, 2), _ints(5)]


@pytest.mark.parametrize(
    ("place", "bad", "what"),
    [
        (1, None, "together"),
        (2, V[:, :, :SIZE] if V is not None else None, "do not fit"),
        (3, None, "together"),
        (4, CACHE[:, :, :3], "past_value"),
        (3, CACHE[:, :1], "past_key"),
        (3, CACHE.astype(np.int8), "past_key"),
        (5, _ints(5, 2), "seqlens_k"),
        (5, _ints(4, -1), "seqlens_k"),
        (5, _ints(4), "seqlens_k"),
        (6, _ints(0), "total_sequence_length"),
        (6, _ints(5, 5), "total_sequence_length"),
        (10, _floats(1, 1, 1, 4), "attention_bias"),
        (11, _floats(3), "head_sink"),
        (12, _floats(1), "k_scale"),
        (14, _floats(SIZE), "together"),
    ],
)
def test_inputs_that_do_not_fit(place: int, bad: Array | None, what: str) -> None:
    inputs: list[Array | None] = [*TOKEN, *[None] * 9]
    inputs[place] = bad
    with pytest.raises(InputError, match=what):
        run_kernel(OP, inputs, HEADS)


def test_a_past_longer_than_its_cache() -> None:
    with pytest.raises(InputError, match="seqlens_k"):
        run_kernel(OP, [Q, K, V, CACHE[:, :, :2], CACHE[:, :, :2], _ints(4, 2), _ints(5)], HEADS)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"causal": 2}, "causal"),
        ({"causal": 0, "local_window_size": 2}, "local_window_size"),
        ({"local_window_size": 0}, "local_window_size"),
        ({"qk_output": 3}, "qk_output"),
        ({"sliding_window_cache": 1}, "local_window_size"),
        ({"sliding_window_cache": 1, "local_window_size": 5}, "window"),
        ({"sliding_window_cache": 1, "local_window_size": 2, "qk_output": 1}, "qk_output"),
        ({"kv_num_heads": 3}, "kv_num_heads"),
        ({"do_rotary": 1}, "cos_cache"),
        ({"k_quant_type": "PER_ROW"}, "k_quant_type"),
        ({"v_quant_type": "PER_TENSOR"}, "v_scale"),
        ({"v_quant_type": "PER_TENSOR", "kv_cache_bit_width": 2}, "kv_cache_bit_width"),
    ],
)
def test_attributes_that_do_not_fit(change: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError, match=what):
        run_kernel(OP, TOKEN, HEADS | change)
