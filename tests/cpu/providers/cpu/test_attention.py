"""Attention against plain loops, its refusals, and the rotary and linear forms."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import InputError
from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels.onnx.attention import attention, rotary_embedding
from dovetail.providers.cpu.kernels.onnx.linear_attention import causal_conv_with_state, linear_attention


def _by_loops(q: Array, k: Array, v: Array, *, causal: bool, left: int, right: int, offset: int) -> Array:
    """One query at a time over the keys it may see."""
    y = np.zeros((*q.shape[:3], v.shape[3]))
    share = q.shape[1] // k.shape[1]
    for b, h, i in np.ndindex(*q.shape[:3]):
        at = offset + i
        first = max(at - left, 0) if left >= 0 else 0
        last = min([at + right] * (right >= 0) + [at] * causal + [k.shape[2] - 1])
        keys = slice(first, max(last + 1, 0))
        scores = k[b, h // share, keys] @ q[b, h, i] / q.shape[3] ** 0.5
        weights = np.exp(scores - scores.max(initial=0))
        if weights.size:
            y[b, h, i] = weights @ v[b, h // share, keys] / weights.sum()
    return y


@settings(max_examples=25)
@given(
    st.tuples(*[st.integers(1, 4)] * 3),
    st.booleans(),
    st.integers(-1, 3),
    st.integers(-1, 2),
    st.integers(0, 3),
)
def test_attention_is_its_definition(
    sizes: tuple[int, int, int], causal: bool, left: int, right: int, past: int
) -> None:
    queries, keys, share = sizes
    rng = np.random.default_rng(queries + 10 * keys)
    q, k = rng.standard_normal((2, 2 * share, queries, 3)), rng.standard_normal((2, 2, keys + past, 3))
    v = rng.standard_normal((2, 2, keys + past, 5))
    split = (k[:, :, :past], v[:, :, :past]) if past else (None, None)
    attributes = {"is_causal": int(causal), "left_window_size": left, "right_window_size": right}
    y, present_key, present_value, _ = attention(q, k[:, :, past:], v[:, :, past:], None, *split, **attributes)
    np.testing.assert_allclose(y, _by_loops(q, k, v, causal=causal, left=left, right=right, offset=past), atol=1e-12)
    assert np.array_equal(present_key, k)
    assert np.array_equal(present_value, v)


def test_query_that_sees_nothing_gets_zeros() -> None:
    q = np.ones((1, 1, 2, 2), np.float32)
    mask = np.array([[True, True], [False, False]])
    y, _, _, scores = attention(q, q, q, mask, qk_matmul_output_mode=3)
    assert y[0, 0].tolist() == [[1, 1], [0, 0]]
    assert scores[0, 0].tolist() == [[0.5, 0.5], [0, 0]]


def test_no_keys_and_no_batch() -> None:
    q, none = np.ones((1, 1, 2, 2), np.float32), np.ones((1, 1, 0, 2), np.float32)
    assert attention(q, none, none)[0].tolist() == [[[[0, 0], [0, 0]]]]
    assert attention(q[:0], q[:0], q[:0])[0].shape == (0, 1, 2, 2)


def test_values_may_be_of_another_type() -> None:
    q = np.ones((1, 1, 1, 2), np.float16)
    y, key, value, _ = attention(q, q, q.astype(ml_dtypes.bfloat16))
    assert (y.dtype, key.dtype, value.dtype) == (np.float16, np.float16, ml_dtypes.bfloat16)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"past_key": np.zeros((1, 2, 1, 4), np.float32)}, "'past_key' and 'past_value' must come together"),
        ({"k": np.zeros((1, 3, 2, 4), np.float32)}, "2 query heads do not divide among 3 key heads"),
        ({"k": np.zeros((1, 2, 2, 5), np.float32)}, "head sizes differ; expected 4, got 5"),
        ({"attn_mask": np.zeros((3, 2), np.float32)}, "'attn_mask' does not broadcast to the scores"),
        ({"nonpad_kv_seqlen": np.array([1, 2])}, "'nonpad_kv_seqlen' has the wrong shape"),
        ({"qk_matmul_output_mode": 4}, "'qk_matmul_output_mode' is unknown"),
        ({"k": np.zeros((1, 2, 4), np.float32)}, "Q, K and V differ in rank"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], message: str) -> None:
    x = np.zeros((1, 2, 2, 4), np.float32)
    with pytest.raises(InputError, match=f"op Attention: {message}"):
        attention(**{"q": x, "k": x, "v": x, **change})


def test_three_axes_need_heads() -> None:
    x = np.zeros((1, 2, 6), np.float32)
    assert attention(x, x, x, q_num_heads=3, kv_num_heads=3)[0].shape == (1, 2, 6)
    with pytest.raises(InputError, match="need a count of heads"):
        attention(x, x, x, q_num_heads=4, kv_num_heads=4)


def test_rotation_keeps_lengths_and_position_zero() -> None:
    angles = np.outer(np.arange(4), [1.0, 0.1])
    cos, sin = np.cos(angles), np.sin(angles)
    x = np.random.default_rng(0).standard_normal((1, 1, 4, 6))
    for interleaved in (0, 1):
        y = rotary_embedding(x, cos, sin, np.arange(4)[None], interleaved=interleaved, rotary_embedding_dim=4)
        np.testing.assert_allclose(np.linalg.norm(y, axis=-1), np.linalg.norm(x, axis=-1))
        assert np.array_equal(y[..., 4:], x[..., 4:])
        assert np.array_equal(y[:, :, 0], x[:, :, 0])


@pytest.mark.parametrize("bad", [4, -1])
def test_rotation_refuses_positions_outside_the_cache(bad: int) -> None:
    cache = np.ones((4, 1), np.float32)
    with pytest.raises(InputError, match=r"op RotaryEmbedding: index is out of range; expected 0\.\.3"):
        rotary_embedding(np.ones((1, 1, 1, 2), np.float32), cache, cache, np.array([[bad]]))
    with pytest.raises(InputError, match="'num_heads' must divide the features"):
        rotary_embedding(np.ones((1, 1, 2), np.float32), cache, cache, np.array([[0]]))


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_linear_attention_goes_on_from_its_state(rule: str) -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 6, n)).astype(np.float32) for n in (8, 4, 6))
    decay = -rng.random((2, 6, 2)).astype(np.float32) if "gated" in rule else None
    beta = rng.random((2, 6, 2)).astype(np.float32) if "delta" in rule else None
    attributes: dict[str, Any] = {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": rule}

    def run(part: slice, state: Array | None) -> tuple[Array, Array]:
        gates = [None if x is None else x[:, part] for x in (decay, beta)]
        outputs: tuple[Array, Array] = linear_attention(q[:, part], k[:, part], v[:, part], state, *gates, **attributes)
        return outputs

    whole, last = run(slice(None), None)
    first, state = run(slice(0, 2), None)
    second, state = run(slice(2, 6), state)
    np.testing.assert_allclose(np.concatenate((first, second), axis=1), whole, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(state, last, rtol=1e-5, atol=1e-6)


def test_linear_attention_checks_its_gates_and_takes_no_batch() -> None:
    x = np.zeros((0, 3, 4), np.float32)
    y, state = linear_attention(x, x, x, q_num_heads=2, kv_num_heads=2, update_rule="linear")
    assert (y.shape, state.shape) == ((0, 3, 4), (0, 2, 2, 2))
    with pytest.raises(InputError, match="rule 'gated' and the input 'decay' do not fit"):
        linear_attention(x, x, x, q_num_heads=2, kv_num_heads=2, update_rule="gated")


def test_causal_convolution_goes_on_from_its_state() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 2, 7)), rng.standard_normal((2, 1, 4))
    whole, last = causal_conv_with_state(x, w)
    first, state = causal_conv_with_state(x[:, :, :2], w)
    second, state = causal_conv_with_state(x[:, :, 2:], w, None, state)
    np.testing.assert_allclose(np.concatenate((first, second), axis=2), whole)
    assert np.array_equal(state, last)
    assert np.array_equal(last, x[:, :, -3:])
