"""Sums of convolutions for a tile of pixels and filters; kernels that are generated call them and go on from there."""
# mypy: ignore-errors

import triton
import triton.language as tl

__all__ = ["join_splits", "slide_channels", "slide_tile"]


@triton.jit
def slide_tile(
    image,
    weight,
    rows,
    columns,
    start,
    end,
    M: tl.constexpr,
    N: tl.constexpr,
    C: tl.constexpr,
    HIGH: tl.constexpr,
    WIDE: tl.constexpr,
    OUT_HIGH: tl.constexpr,
    OUT_WIDE: tl.constexpr,
    R: tl.constexpr,
    S: tl.constexpr,
    STRIDE_H: tl.constexpr,
    STRIDE_W: tl.constexpr,
    DILATION_H: tl.constexpr,
    DILATION_W: tl.constexpr,
    PAD_H: tl.constexpr,
    PAD_W: tl.constexpr,
    IMAGE: tl.constexpr,
    CHANNEL: tl.constexpr,
    LINE: tl.constexpr,
    PIXEL: tl.constexpr,
    IS_INSIDE: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """A product of windows and filters, in steps of BLOCK_K from ``start`` to ``end``.

    With many channels a step is some channels at one place of the window; with few it is some of all (place, channel).
    The filters are (N, R, S, C) in memory.
    """
    top = rows // OUT_WIDE % OUT_HIGH * STRIDE_H - PAD_H
    left = rows % OUT_WIDE * STRIDE_W - PAD_W
    corner = image + rows // (OUT_HIGH * OUT_WIDE) * IMAGE + top * LINE + left * PIXEL
    inner = tl.arange(0, BLOCK_K)
    filters = weight + columns * (R * S * C)
    has_rows = rows < M
    has_columns = columns < N
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(start, end):
        if C >= BLOCK_K:
            blocks: tl.constexpr = (C + BLOCK_K - 1) // BLOCK_K
            place = step // blocks
            channel = step % blocks * BLOCK_K + inner
            r = place // S
            s = place % S
            at = r * (DILATION_H * LINE) + s * (DILATION_W * PIXEL) + channel * CHANNEL
            tap = place * C + channel
            has_inner = channel < C
            line = top + r * DILATION_H
            pixel = left + s * DILATION_W
            is_inside = has_rows
            if not IS_INSIDE:
                is_inside = has_rows & (line >= 0) & (line < HIGH) & (pixel >= 0) & (pixel < WIDE)
            a_mask = is_inside[:, None] & has_inner[None, :]
        else:
            tap = step * BLOCK_K + inner
            channel = tap % C
            r = tap // C // S
            s = tap // C % S
            at = r * (DILATION_H * LINE) + s * (DILATION_W * PIXEL) + channel * CHANNEL
            has_inner = tap < R * S * C
            a_mask = has_rows[:, None] & has_inner[None, :]
            if not IS_INSIDE:
                line = top[:, None] + r[None, :] * DILATION_H
                pixel = left[:, None] + s[None, :] * DILATION_W
                a_mask = a_mask & (line >= 0) & (line < HIGH) & (pixel >= 0) & (pixel < WIDE)
        a = tl.load(corner[:, None] + at[None, :], mask=a_mask, other=0.0)
        b = tl.load(filters[None, :] + tap[:, None], mask=has_inner[:, None] & has_columns[None, :], other=0.0)
        total = tl.dot(a, b, total, input_precision=PRECISION)
    return total


@triton.jit
def slide_channels(
    image,
    weight,
    rows,
    columns,
    M: tl.constexpr,
    N: tl.constexpr,
    PER_CHANNEL: tl.constexpr,
    HIGH: tl.constexpr,
    WIDE: tl.constexpr,
    OUT_HIGH: tl.constexpr,
    OUT_WIDE: tl.constexpr,
    R: tl.constexpr,
    S: tl.constexpr,
    STRIDE_H: tl.constexpr,
    STRIDE_W: tl.constexpr,
    DILATION_H: tl.constexpr,
    DILATION_W: tl.constexpr,
    PAD_H: tl.constexpr,
    PAD_W: tl.constexpr,
    IMAGE: tl.constexpr,
    CHANNEL: tl.constexpr,
    LINE: tl.constexpr,
    PIXEL: tl.constexpr,
    IS_INSIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Every channel with filters of its own, which are (R, S, N) in memory."""
    top = rows // OUT_WIDE % OUT_HIGH * STRIDE_H - PAD_H
    left = rows % OUT_WIDE * STRIDE_W - PAD_W
    corner = image + rows // (OUT_HIGH * OUT_WIDE) * IMAGE + top * LINE + left * PIXEL
    channels = columns // PER_CHANNEL * CHANNEL
    has_columns = columns < N
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for r in range(R):
        line = top + r * DILATION_H
        for s in tl.static_range(S):
            pixel = left + s * DILATION_W
            is_inside = rows < M
            if not IS_INSIDE:
                is_inside = is_inside & (line >= 0) & (line < HIGH) & (pixel >= 0) & (pixel < WIDE)
            place = (corner + (r * DILATION_H * LINE + s * DILATION_W * PIXEL))[:, None] + channels[None, :]
            x = tl.load(place, mask=is_inside[:, None] & has_columns[None, :], other=0.0)
            w = tl.load(weight + (r * S + s) * N + columns, mask=has_columns, other=0.0)
            total += x.to(tl.float32) * w.to(tl.float32)[None, :]
    return total


@triton.jit
def join_splits(
    total, parts, counters, tile, split, SPLITS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """The sums of all splits in their order, for the last block of a tile that comes here; and whether this is it.

    The counters are zero before and after.
    """
    inside = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    place = parts + tile * (SPLITS * BLOCK_M * BLOCK_N) + inside
    tl.store(place + split * (BLOCK_M * BLOCK_N), total)
    tl.debug_barrier()  # every thread has stored before one of them says so
    ticket = tl.atomic_add(counters + tile, 1, sem="acq_rel")
    is_last = ticket == SPLITS - 1
    if is_last:
        total = tl.load(place, cache_modifier=".cg")
        for other in range(1, SPLITS):
            total += tl.load(place + other * (BLOCK_M * BLOCK_N), cache_modifier=".cg")
        tl.store(counters + tile, 0)
    return total, is_last
