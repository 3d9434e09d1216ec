"""Weights quantized in blocks of a few bits: MatMulNBits, MatMulBnb4 and GatherBlockQuantized of com.microsoft.

A block is a run of weights along one axis that share a scale and a zero point. Packed weights lie in bytes, the first
in the lowest bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels._checks import normalize_axis, require, wrap_indices
from dovetail.providers.cpu.kernels._conversion import is_integer
from dovetail.providers.cpu.kernels._support import FLOAT4, FLOAT8, INT4, reference, widen
from dovetail.providers.cpu.registry import kernel

__all__ = ["gather_block_quantized", "matmul_bnb4", "matmul_nbits", "unpack_bits"]

_DOMAIN: Final = "com.microsoft"
_REAL: Final = ("float32", "float16", "bfloat16")
_BITS: Final = (2, 4, 8)
_SMALLEST_BLOCK: Final = 16


def unpack_bits(packed: Array, bits: int) -> Array:
    """The unsigned numbers in bytes, along the last axis.

    >>> unpack_bits(np.array([0x21, 0x43], np.uint8), 4)
    array([1, 2, 3, 4], dtype=uint8)
    """
    if bits == 8:
        return packed
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    numbers = (packed[..., None] >> shifts) & np.uint8(2**bits - 1)
    return np.asarray(numbers.reshape(*packed.shape[:-1], -1))


def _check_block(op: str, block_size: int, *, none: bool = False) -> None:
    power = block_size >= _SMALLEST_BLOCK and block_size & (block_size - 1) == 0
    fits = power or (none and block_size == 0)
    require(fits, op, "'block_size' must be a power of two", expected=f">= {_SMALLEST_BLOCK}", got=block_size)


@kernel("MatMulNBits", domain=_DOMAIN, since=1, types={"T1": _REAL, "T2": ("uint8",), "T3": (*_REAL, "uint8")})
@reference
def matmul_nbits(
    a: Array,
    b: Array,
    scales: Array,
    zero_points: Array | None = None,
    g_idx: Array | None = None,
    bias: Array | None = None,
    *,
    K: int,  # noqa: N803 - the schema names it so
    N: int,  # noqa: N803
    accuracy_level: int = 0,
    bits: int = 4,
    block_size: int,
    weight_prepacked: int = 0,
) -> Array:
    """The product with a matrix of N rows of K weights in 2, 4 or 8 bits, plus an optional bias.

    The accuracy level is the least that is asked for, and float32 satisfies every one. ``g_idx`` says for each of the
    K columns which block's scale and zero point it has.
    """
    op = "MatMulNBits"
    require(bits in _BITS, op, "'bits' is not supported", expected="2, 4 or 8", got=bits)
    _check_block(op, block_size)
    require(weight_prepacked == 0, op, "'weight_prepacked' is not supported", expected=0, got=weight_prepacked)
    require(accuracy_level in range(5), op, "'accuracy_level' is unknown", expected="0 to 4", got=accuracy_level)
    require(a.ndim > 0 and a.shape[-1] == K, op, "the input does not end in 'K'", expected=K, got=a.shape)
    blocks = -(-K // block_size)
    _check_shape(op, "B", b, [(N, blocks, block_size * bits // 8)])
    _check_shape(op, "scales", scales, [(N, blocks), (N * blocks,)])
    columns = _block_of_column(op, g_idx, K, blocks, block_size)
    zeros = _read_zeros(op, zero_points, bits, N, blocks)
    quantized = unpack_bits(b, bits).reshape(N, blocks * block_size)[:, :K].astype(np.float32)
    factors = scales.reshape(N, blocks).astype(np.float32)
    weights = (quantized - zeros[:, columns]) * factors[:, columns]
    y = np.matmul(a.astype(np.float32), weights.T)
    if bias is not None:
        _check_shape(op, "bias", bias, [(N,)])
        y = y + bias.astype(np.float32)
    return np.asarray(y).astype(a.dtype)


def _check_shape(op: str, name: str, x: Array, shapes: Sequence[tuple[int, ...]]) -> None:
    require(x.shape in shapes, op, f"'{name}' has the wrong shape", expected=" or ".join(map(str, shapes)), got=x.shape)


def _block_of_column(op: str, g_idx: Array | None, size: int, blocks: int, block_size: int) -> Array:
    if g_idx is None:
        return np.arange(size) // block_size
    _check_shape(op, "g_idx", g_idx, [(size,), (blocks * block_size,)])
    return wrap_indices(op, g_idx, blocks, lowest=0)[:size]


def _read_zeros(op: str, zero_points: Array | None, bits: int, rows: int, blocks: int) -> Array:
    """One zero point a block in float32: the middle of the range, real numbers, or numbers packed as the weights."""
    if zero_points is None:
        return np.full((rows, blocks), 2 ** (bits - 1), dtype=np.float32)
    if zero_points.dtype != np.uint8:
        _check_shape(op, "zero_points", zero_points, [(rows, blocks), (rows * blocks,)])
        return zero_points.reshape(rows, blocks).astype(np.float32)
    width = -(-blocks * bits // 8)
    _check_shape(op, "zero_points", zero_points, [(rows, width), (rows * width,)])
    return unpack_bits(zero_points.reshape(rows, width), bits)[:, :blocks].astype(np.float32)


_NF4: Final = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635),
    *(-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725),
    *(0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
"""The quantiles of a normal distribution that four bits stand for."""
_FP4_MAGNITUDES: Final = (0.0, 0.00520833333, 2 / 3, 1.0, 1 / 3, 1 / 2, 1 / 6, 1 / 4)
_FP4: Final = (*_FP4_MAGNITUDES, *(-value for value in _FP4_MAGNITUDES))


@kernel("MatMulBnb4", domain=_DOMAIN, since=1, types={"T1": _REAL, "T2": ("uint8",)})
@reference
def matmul_bnb4(
    a: Array,
    b: Array,
    absmax: Array,
    *,
    K: int,  # noqa: N803 - the schema names it so
    N: int,  # noqa: N803
    block_size: int,
    quant_type: int,
    training_mode: int = 0,
    transB: int = 1,  # noqa: N803
) -> Array:
    """The product with a matrix of N rows of K weights in four bits of a small float (0) or normal quantiles (1).

    Blocks run through the rows as if they were one; the first weight of a byte is in its upper half. Training would
    only keep the matrix for a gradient.
    """
    op = "MatMulBnb4"
    require(quant_type in (0, 1), op, "'quant_type' is unknown", expected="0 or 1", got=quant_type)
    require(transB == 1, op, "'transB' is not supported", expected=1, got=transB)
    _check_block(op, block_size)
    require(a.ndim > 0 and a.shape[-1] == K, op, "the input does not end in 'K'", expected=K, got=a.shape)
    count = N * K
    require(b.size == -(-count // 2), op, "'B' has the wrong size", expected=-(-count // 2), got=b.size)
    blocks = -(-count // block_size)
    require(absmax.size == blocks, op, "'absmax' has one value a block", expected=blocks, got=absmax.size)
    pairs = unpack_bits(b.reshape(-1, 1), 4)[:, ::-1]
    numbers = np.array(_NF4 if quant_type else _FP4, dtype=np.float32)[pairs.reshape(-1)[:count]]
    factors = np.repeat(absmax.reshape(-1).astype(np.float32), block_size)[:count]
    weights = (numbers * factors).reshape(N, K)
    return np.asarray(np.matmul(a.astype(np.float32), weights.T)).astype(a.dtype)


@kernel(
    "GatherBlockQuantized",
    domain=_DOMAIN,
    since=1,
    types={"T1": (*INT4, "uint8", *FLOAT8, *FLOAT4), "T2": _REAL, "Tind": ("int32", "int64")},
)
@reference
def gather_block_quantized(
    data: Array,
    indices: Array,
    scales: Array,
    zero_points: Array | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> Array:
    """Slices of a quantized table as real values; an index outside the table gives zeros, as the op defines.

    Slices are taken before they are unpacked and before scales are spread over their blocks: a table is far larger
    than what one call picks.
    """
    op = "GatherBlockQuantized"
    along, blocked = normalize_axis(op, gather_axis, data.ndim), normalize_axis(op, quantize_axis, data.ndim)
    packed = data.dtype == np.uint8
    _check_table(op, data, zero_points, bits, block_size, along, blocked)
    shape = (*data.shape[:-1], data.shape[-1] * (8 // bits)) if packed else data.shape
    size = block_size or max(shape[blocked], 1)
    _check_scales(op, shape, scales, zero_points, blocked, size, bits if packed else 8)
    inside = (indices >= -shape[along]) & (indices < shape[along])
    rows = np.where(inside, indices, 0).reshape(-1).astype(np.int64) % max(shape[along], 1)
    where = rows // size if along == blocked else rows

    def spread(values: Array) -> Array:
        """One value an element; where the blocked axis was gathered each already has its own."""
        return values if along == blocked else np.repeat(values, size, axis=blocked)[_until(blocked, shape[blocked])]

    numbers = _pick(data, rows, along)
    picked = _as_floats(unpack_bits(numbers, bits) if packed else numbers)
    zeros = _pick_zeros(zero_points, where, along, scales.shape[-1], bits if packed else 0)
    if zeros is not None:
        picked = picked - (spread(zeros) if zeros.ndim else zeros)
    y = picked * spread(_pick(widen(scales), where, along))
    y = np.where(inside.reshape([-1 if axis == along else 1 for axis in range(data.ndim)]), y, 0)
    return np.asarray(y.reshape(*shape[:along], *indices.shape, *shape[along + 1 :])).astype(scales.dtype)


def _check_table(
    op: str, data: Array, zero_points: Array | None, bits: int, block_size: int, along: int, blocked: int
) -> None:
    integer = is_integer(data.dtype)
    _check_block(op, block_size, none=not integer)
    require(integer or zero_points is None, op, "'zero_points' do not go with floats", got=data.dtype)
    if data.dtype == np.uint8:
        require(bits in _BITS, op, "'bits' is not supported", expected="2, 4 or 8", got=bits)
        require(along == 0, op, "'gather_axis' must be 0 for bytes", got=along)
        require(0 != blocked == data.ndim - 1, op, "'quantize_axis' must be the last axis for bytes", got=blocked)


def _check_scales(
    op: str, shape: tuple[int, ...], scales: Array, zeros: Array | None, blocked: int, size: int, bits: int
) -> None:
    wanted = tuple(-(-n // size) if axis == blocked else n for axis, n in enumerate(shape))
    # A scale may serve a whole axis; where the op does not define that, its shape inference refuses the model.
    fits = scales.ndim == len(shape) and all(
        n == m or (axis != blocked and n == 1) for axis, (n, m) in enumerate(zip(scales.shape, wanted, strict=True))
    )
    require(fits, op, "'scales' has the wrong shape", expected=wanted, got=scales.shape)
    if zeros is not None:
        packed = (*scales.shape[:-1], -(-scales.shape[-1] * bits // 8))
        require(zeros.shape == packed, op, "'zero_points' has the wrong shape", expected=packed, got=zeros.shape)


def _pick(table: Array, rows: Array, axis: int) -> Array:
    """Slices along an axis; a table with one slice gives it to all, and one with none gives zeros."""
    if table.shape[axis] == 1:
        return table
    if table.shape[axis] == 0:
        return np.zeros((*table.shape[:axis], rows.size, *table.shape[axis + 1 :])).astype(table.dtype)
    return np.take(table, rows, axis=axis)


def _pick_zeros(zero_points: Array | None, rows: Array, axis: int, width: int, bits: int) -> Array | None:
    """The zero points of what was picked; bytes that have none are centred, signed and small integers are not."""
    if zero_points is None:
        return np.array(2 ** (bits - 1), dtype=np.float32) if bits else None
    picked = _pick(zero_points, rows, axis)
    return _as_floats(unpack_bits(picked, bits)[..., :width] if bits else picked)


def _as_floats(x: Array) -> Array:
    return x.astype(np.int32).astype(np.float32) if is_integer(x.dtype) else x.astype(np.float32)


def _until(axis: int, size: int) -> tuple[slice, ...]:
    return (*[slice(None)] * axis, slice(size))
