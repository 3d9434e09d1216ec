"""Quantization, attention, assertions, plugins, and the layers that refuse."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dovetail.errors import UnsupportedOpError
from dovetail.network.api.enums import (
    AttentionIOForm,
    AttentionNormalizationOp,
    CausalMaskKind,
    ElementWiseOperation,
    KVCacheMode,
)
from dovetail.types import DataType
from tests.support.layer_cases import Expected, Sketch, case, rand
from tests.support.plugins import PlainCreator, ScalePlugin

LARGEST = {DataType.INT8: 127, DataType.FP8: 448, DataType.INT4: 7, DataType.FP4: 6, DataType.UINT8: 255}
LEAST = {DataType.INT8: -128, DataType.FP8: -448, DataType.INT4: -8, DataType.FP4: -6, DataType.UINT8: 0}


def spread(scale: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A scale for each element from a scale for each block."""
    for axis, size in enumerate(shape):
        scale = scale.repeat(-(-size // scale.shape[axis]), axis).take(range(size), axis)
    return scale


def quantize(x: np.ndarray, scale: Any, dtype: DataType, zero: int = 0) -> np.ndarray:
    value = x.astype(np.float64) / scale
    if dtype in (DataType.INT8, DataType.INT4, DataType.UINT8):
        value = np.rint(value) + zero
    return np.clip(value, LEAST[dtype], LARGEST[dtype]).astype(np.float32).astype(dtype.numpy)


def _as_float(sketch: Sketch, tensor: Any) -> Any:
    return sketch.network.add_cast(tensor, DataType.FLOAT).get_output(0)


@case("add_quantize", "one scale", dtype=DataType.INT8, scale=np.float32(0.02))
@case("add_quantize", "one scale in an array", dtype=DataType.INT8, scale=np.full(1, 0.02, np.float32))
@case("add_quantize", "an axis", dtype=DataType.INT8, scale=rand(4, low=0.01, high=0.1), axis=0, open_dims=False)
@case("add_quantize", "another axis", dtype=DataType.FP8, scale=rand(6, low=0.01, high=0.1), axis=1)
@case("add_quantize", "blocks", dtype=DataType.INT4, scale=rand(4, 2, low=0.1, high=0.3), open_dims=False)
@case("add_quantize", "blocks of a shape", dtype=DataType.FP4, scale=rand(4, 3, low=0.2, high=0.4), block=(1, 2))
@case("add_quantize", "blocks in two dimensions", dtype=DataType.INT8, scale=rand(2, 3, low=0.01, high=0.1),
      block=(2, 2))  # fmt: skip
def quantize_layer(sketch: Sketch, dtype: DataType, scale: Any, axis: int | None = None, block: Any = None) -> Expected:
    x = rand(4, 6)
    layer = sketch.network.add_quantize(sketch.input(x), sketch.input(scale, fixed=True), DataType.UINT8)
    layer.to_type, layer.block_shape = dtype, block
    if axis is not None:
        layer.axis = axis
    wide = np.asarray(scale)
    if axis is not None:
        wide = wide.reshape([-1 if i == axis else 1 for i in range(2)])
    elif wide.ndim == 2:
        wide = spread(wide, x.shape)
    return [(_as_float(sketch, layer.get_output(0)), quantize(x, wide, dtype).astype(np.float32))]


@case("add_quantize", "with a zero point")
def quantize_zero(sketch: Sketch) -> Expected:
    x, scale, zero = rand(3, 4), np.float32(0.02), np.uint8(120)
    layer = sketch.network.add_quantize(sketch.input(x), sketch.input(scale), DataType.UINT8)
    layer.set_input(2, sketch.input(zero))
    return [(layer.get_output(0), quantize(x, scale, DataType.UINT8, 120))]


@case("add_dequantize", "one scale", to=DataType.FLOAT, scale=np.float32(0.5))
@case("add_dequantize", "to halves", to=DataType.HALF, scale=np.float32(0.5))
@case("add_dequantize", "an axis", to=DataType.FLOAT, scale=rand(6, low=0.1, high=2), axis=1)
@case("add_dequantize", "blocks in two dimensions", to=DataType.FLOAT, scale=rand(2, 2, low=0.1, high=2), block=(2, 3))
def dequantize_layer(sketch: Sketch, to: DataType, scale: Any, axis: int | None = None, block: Any = None) -> Expected:
    x = np.random.default_rng(0).integers(-128, 128, (4, 6)).astype(np.int8)
    layer = sketch.network.add_dequantize(sketch.input(x), sketch.input(scale, fixed=True))
    layer.to_type, layer.block_shape = to, block
    if axis is not None:
        layer.axis = axis
    wide = np.asarray(scale)
    if wide.ndim == 2:
        wide = spread(wide, x.shape)
    return [(layer.get_output(0), (x * wide).astype(to.numpy))]


@case("add_dequantize", "with a zero point")
def dequantize_zero(sketch: Sketch) -> Expected:
    x, scale, zero = np.array([1, 5, 250], np.uint8), np.float32(0.5), np.uint8(7)
    layer = sketch.network.add_dequantize(sketch.input(x), sketch.input(scale))
    layer.set_input(2, sketch.input(zero))
    return [(layer.get_output(0), ((x.astype(np.float32) - 7) * scale).astype(np.float32))]


def block_scales(x: np.ndarray, blocks: tuple[int, ...], largest: float) -> np.ndarray:
    """The largest magnitude of each block over the largest number of the type."""
    parts = np.abs(x).reshape([n for size, block in zip(x.shape, blocks, strict=True) for n in (size // block, block)])
    return (parts.max(tuple(range(1, 2 * x.ndim, 2))) / np.float32(largest)).astype(np.float32)


def dynamic(sketch: Sketch, layer: Any, x: np.ndarray, blocks: Any, to: DataType, factor: float | None) -> Expected:
    scale = block_scales(x, blocks, LARGEST[to])
    stored: Any = scale
    if layer.scale_type == DataType.FP8:
        stored = quantize(scale, factor or 1.0, DataType.FP8)
        scale = stored.astype(np.float32) * np.float32(factor or 1.0)
    elif layer.scale_type == DataType.E8M0:
        scale = np.exp2(np.ceil(np.log2(scale)))
        stored = scale.astype(ml_dtypes.float8_e8m0fnu)
    safe = np.where(scale == 0, 1, scale)
    wanted = quantize(x, spread(safe, x.shape), to)
    return [
        (_as_float(sketch, layer.get_output(0)), wanted.astype(np.float32)),
        (_as_float(sketch, layer.get_output(1)), stored.astype(np.float32)),
    ]


@case("add_dynamic_quantize", "four bits, scales of eight", to=DataType.FP4, kind=DataType.FP8, factor=0.002)
@case("add_dynamic_quantize", "eight bits, scales of two", to=DataType.FP8, kind=DataType.E8M0)
@case("add_dynamic_quantize", "the first axis", to=DataType.INT8, kind=DataType.FLOAT, axis=0, size=4)
def dynamic_quantize(
    sketch: Sketch, to: DataType, kind: DataType, factor: float | None = None, axis: int = 1, size: int = 16
) -> Expected:
    x = rand(8, 32)
    x[0, :16] = 0
    layer = sketch.network.add_dynamic_quantize(sketch.input(x, fixed=True), 0, 2, DataType.FP8, DataType.FLOAT)
    layer.axis, layer.block_size, layer.to_type, layer.scale_type = axis, size, to, kind
    if kind == DataType.E8M0:
        x += 1e-3  # a scale of zero has no power of two
    if factor is not None:
        layer.set_input(1, sketch.input(np.float32(factor)))
    return dynamic(sketch, layer, x, (1, size) if axis else (size, 1), to, factor)


@case("add_dynamic_quantize_v2", "two dimensions", block=(4, 4))
@case("add_dynamic_quantize_v2", "whole rows", block=(1, -1))
def dynamic_quantize_v2(sketch: Sketch, block: Any) -> Expected:
    x = rand(8, 8)
    layer = sketch.network.add_dynamic_quantize_v2(sketch.input(x, fixed=True), (8, 8), DataType.FP8, DataType.FLOAT)
    layer.block_shape = block
    return dynamic(sketch, layer, x, tuple(8 if size == -1 else size for size in block), DataType.FP8, None)


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, allowed: Any, added: Any = 0.0, softmax: bool = True,
           step: float = 0.0) -> np.ndarray:  # fmt: skip
    """(batch, heads, tokens, size), with heads of k and v shared by several of q."""
    share = q.shape[1] // k.shape[1]
    k, v = k.repeat(share, 1).astype(np.float64), v.repeat(share, 1).astype(np.float64)
    scores = q.astype(np.float64) @ k.swapaxes(-1, -2) + added
    weights = np.where(allowed, scores, 0)
    if softmax:
        hidden = np.where(allowed, scores, -1e30)
        weights = np.where(allowed, np.exp(hidden - hidden.max(-1, keepdims=True)), 0)
        total = weights.sum(-1, keepdims=True)
        weights = weights / np.where(total == 0, 1, total)
    if step:
        weights = np.clip(np.rint(weights / step), -128, 127) * step
    return (weights @ v).astype(np.float32)


def diagonal(rows: int, columns: int, offset: int) -> np.ndarray:
    return np.arange(columns)[None, :] <= np.arange(rows)[:, None] + offset


SOFTMAX, PLAIN = AttentionNormalizationOp.SOFTMAX, AttentionNormalizationOp.NONE


@case("add_attention", "as it is")
@case("add_attention", "causal", causal=True)
@case("add_attention", "not normalized", op=PLAIN)
@case("add_attention", "not normalized, causal", op=PLAIN, causal=True)
@case("add_attention", "a flag mask", mask="flags")
@case("add_attention", "a flag mask, not normalized", mask="flags", op=PLAIN)
@case("add_attention", "an added mask", mask="numbers")
@case("add_attention", "an added mask, not normalized", mask="numbers", op=PLAIN)
@case("add_attention", "weights rounded", step=1 / 127)
@case("add_attention", "shared heads", heads=1)
@case("add_attention", "shared heads, not normalized", heads=1, op=PLAIN)
def attention(
    sketch: Sketch, op: Any = SOFTMAX, causal: bool = False, mask: str = "", heads: int = 2, step: float = 0.0
) -> Expected:
    q, k, v = rand(2, 2, 3, 4), rand(2, heads, 5, 4, seed=1), rand(2, heads, 5, 6, seed=2)
    needs_heads = op == PLAIN or step > 0
    tensors = [sketch.input(part, fixed=needs_heads) for part in (q, k, v)]
    layer = sketch.network.add_attention(*tensors, PLAIN, not causal)
    layer.norm_op, layer.causal, layer.decomposable = op, causal, True
    allowed, added = np.ones((3, 5), bool), np.zeros(1)
    if causal:
        allowed = diagonal(3, 5, 0)
    if mask == "flags":
        allowed = rand(2, 1, 3, 5) > -1
        layer.mask = sketch.input(allowed)
    elif mask == "numbers":
        added = rand(1, 1, 3, 5)
        layer.mask = sketch.input(added)
    if step:
        layer.normalization_quantize_scale = sketch.input(np.float32(step))
        layer.normalization_quantize_to_type = DataType.INT8
    return [(layer.get_output(0), attend(q, k, v, allowed, added, op == SOFTMAX, step))]


@case("add_attention_v2", "upper left", kind=CausalMaskKind.UPPER_LEFT)
@case("add_attention_v2", "lower right", kind=CausalMaskKind.LOWER_RIGHT)
@case("add_attention_v2", "lower right and a mask", kind=CausalMaskKind.LOWER_RIGHT, mask=True)
@case("add_attention_v2", "lower right and lengths", kind=CausalMaskKind.LOWER_RIGHT, lengths=True)
@case("add_attention_v2", "upper left and lengths", kind=CausalMaskKind.UPPER_LEFT, lengths=True)
@case("add_attention_v2", "lengths alone", kind=CausalMaskKind.NONE, lengths=True)
def attention_v2(sketch: Sketch, kind: CausalMaskKind, mask: bool = False, lengths: bool = False) -> Expected:
    q, k, v = rand(2, 2, 3, 4), rand(2, 2, 5, 4, seed=1), rand(2, 2, 5, 4, seed=2)
    layer = sketch.network.add_attention_v2(*(sketch.input(part) for part in (q, k, v)), SOFTMAX, CausalMaskKind.NONE)
    layer.causal_kind = kind
    ends, rows = (np.array([4, 5]), np.array([2, 3])) if lengths else (np.array([5, 5]), np.array([3, 3]))
    if lengths:
        layer.key_value_lengths, layer.query_lengths = sketch.input(ends.astype(np.int32)), sketch.input(rows)
    allowed = np.stack([np.broadcast_to(np.arange(5) < end, (3, 5)) for end in ends])
    if kind == CausalMaskKind.UPPER_LEFT:
        allowed = allowed & diagonal(3, 5, 0)
    elif kind == CausalMaskKind.LOWER_RIGHT:
        allowed = allowed & np.stack([diagonal(3, 5, end - row) for end, row in zip(ends, rows, strict=True)])
    added = np.zeros(1)
    if mask:
        added = rand(2, 1, 3, 5)
        layer.mask = sketch.input(added)
    return [(layer.get_output(0), attend(q, k, v, allowed[:, None], added))]


PADDED, PACKED = AttentionIOForm.PADDED_BHND, AttentionIOForm.PACKED_NHD


@case("add_attention_v2", "packed", query=PACKED, key=PACKED)
@case("add_attention_v2", "packed, lower right", query=PACKED, key=PACKED, kind=CausalMaskKind.LOWER_RIGHT)
@case("add_attention_v2", "packed queries", query=PACKED, key=PADDED, kind=CausalMaskKind.UPPER_LEFT)
@case("add_attention_v2", "packed keys", query=PADDED, key=PACKED)
def attention_packed(sketch: Sketch, query: Any, key: Any, kind: Any = CausalMaskKind.NONE) -> Expected:
    rows = np.array([2, 3]) if query == PACKED else np.array([3, 3])
    ends = np.array([4, 1])
    q, k, v = rand(2, 2, 3, 4), rand(2, 2, 4, 4, seed=1), rand(2, 2, 4, 4, seed=2)
    pack = lambda part, counts: np.concatenate([part[b, :, :c].swapaxes(0, 1) for b, c in enumerate(counts)])  # noqa: E731
    given = [pack(q, rows) if query == PACKED else q, *(pack(p, ends) if key == PACKED else p for p in (k, v))]
    tensors = [sketch.input(part) for part in given]
    layer = sketch.network.add_attention_v2(*tensors, SOFTMAX, kind)
    layer.query_form, layer.key_value_form = query, key
    total = lambda counts: np.array([0, *np.cumsum(counts)], np.int32)  # noqa: E731
    if query == PACKED:
        layer.query_lengths = sketch.input(total(rows))
    layer.key_value_lengths = sketch.input(total(ends) if key == PACKED else ends.astype(np.int64))
    allowed = np.stack([np.broadcast_to(np.arange(4) < end, (3, 4)) for end in ends])
    for b, (end, row) in enumerate(zip(ends, rows, strict=True)):
        if kind != CausalMaskKind.NONE:
            allowed[b] &= diagonal(3, 4, end - row if kind == CausalMaskKind.LOWER_RIGHT else 0)
    wanted = attend(q, k, v, allowed[:, None])
    return [(layer.get_output(0), pack(wanted, rows) if query == PACKED else wanted)]


@case("add_rotary_embedding", "halves", interleaved=False, size=0)
@case("add_rotary_embedding", "neighbours, in part", interleaved=True, size=4)
@case("add_rotary_embedding", "positions", interleaved=False, size=4, positions=True)
def rotary_embedding(sketch: Sketch, interleaved: bool, size: int, positions: bool = False) -> Expected:
    x = rand(2, 2, 3, 6)
    turned = size or 6
    angles = rand(7, turned // 2) if positions else rand(2, 3, turned // 2)
    cos, sin = np.cos(angles), np.sin(angles)
    layer = sketch.network.add_rotary_embedding(
        *(sketch.input(part, fixed=True) for part in (x, cos, sin)), not interleaved, 2
    )
    layer.interleaved, layer.rotary_embedding_dim = interleaved, size
    if positions:
        where = np.array([[0, 6, 3], [2, 2, 5]], np.int32)
        layer.set_input(3, sketch.input(where, fixed=True))
        cos, sin = cos[where], sin[where]
    cos, sin = cos[:, None], sin[:, None]
    part = x[..., :turned]
    first, second = (part[..., ::2], part[..., 1::2]) if interleaved else np.split(part, 2, -1)
    a, b = first * cos - second * sin, first * sin + second * cos
    wanted = x.copy()
    wanted[..., :turned] = np.stack([a, b], -1).reshape(part.shape) if interleaved else np.concatenate([a, b], -1)
    return [(layer.get_output(0), wanted)]


@case("add_kv_cache_update", "padded")
@case("add_kv_cache_update", "packed", packed=True)
def kv_cache_update(sketch: Sketch, packed: bool = False) -> Expected:
    cache, update, where = rand(2, 2, 6, 3), rand(2, 2, 2, 3, seed=1), np.array([3, 1], np.int32)
    counts = [2, 1] if packed else [2, 2]
    given = np.concatenate([update[b, :, :c].swapaxes(0, 1) for b, c in enumerate(counts)]) if packed else update
    layer = sketch.network.add_kv_cache_update(sketch.input(cache), sketch.input(given), sketch.input(where))
    layer.cache_mode = KVCacheMode.LINEAR
    if packed:
        layer.update_form = AttentionIOForm.PACKED_NHD
        layer.update_lengths = sketch.input(np.array([0, 2, 3], np.int32))
    wanted = cache.copy()
    for b, (start, count) in enumerate(zip(where, counts, strict=True)):
        wanted[b, :, start : start + count] = update[b, :, :count]
    return [(layer.get_output(0), wanted)]


@case("add_assertion", "that holds", value=1.0)
def assertion(sketch: Sketch, value: float) -> Expected:
    x = np.array([1.0, 2.0], np.float32)
    tensor = sketch.input(x)
    limit = sketch.constant(np.full(2, value, np.float32))
    smaller = sketch.network.add_elementwise(limit, tensor, ElementWiseOperation.GREATER).get_output(0)
    layer = sketch.network.add_assertion(smaller, "never seen")
    holds = sketch.network.add_elementwise(tensor, limit, ElementWiseOperation.GREATER).get_output(0)
    other = sketch.network.add_elementwise(tensor, limit, ElementWiseOperation.EQUAL).get_output(0)
    either = sketch.network.add_elementwise(holds, other, ElementWiseOperation.OR).get_output(0)
    layer.set_input(0, either)
    layer.message = "x is too small"
    return [(sketch.network.add_identity(tensor).get_output(0), x)]


@case("add_plugin_v3", "with another input later")
def plugin_v3(sketch: Sketch) -> Expected:
    sketch.registry.register_creator(PlainCreator("TestScale", ScalePlugin), "")
    x, other = rand(2, 3), rand(2, 3, seed=1)
    layer = sketch.network.add_plugin_v3([sketch.input(x)], [], ScalePlugin(2.5))
    layer.set_input(0, sketch.input(other))
    return [(layer.get_output(0), other * 2.5)]


@case("add_plugin", "a tuple", as_function=False)
@case("add_plugin", "a function", as_function=True)
def plugin(sketch: Sketch, as_function: bool) -> Expected:
    sketch.registry.register_creator(PlainCreator("TestScale", ScalePlugin), "")
    x = rand(2, 3)
    given = ([sketch.input(x)], [], ScalePlugin(-1.5))
    layer = sketch.network.add_plugin((lambda: given) if as_function else given)
    return [(layer.get_output(0), x * -1.5)]


@case("add_plugin_v2", "refuses", method="add_plugin_v2", arguments=([], object()))
@case("add_moe", "refuses", method="add_moe", arguments=())
@case("add_dist_collective", "refuses", method="add_dist_collective", arguments=())
def refuses(sketch: Sketch, method: str, arguments: Any) -> Expected:
    with pytest.raises(UnsupportedOpError, match=method):
        getattr(sketch.network, method)(*arguments)
    x = rand(2)
    return [(sketch.network.add_identity(sketch.input(x)).get_output(0), x)]
