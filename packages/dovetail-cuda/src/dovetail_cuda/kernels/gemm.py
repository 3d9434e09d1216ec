"""Parts of products of matrices in tiles: generated kernels call them; sizes are constants but for ``multiply_any``."""
# mypy: ignore-errors

import triton
import triton.language as tl

from dovetail_cuda.kernels import functions as f

__all__ = ["add_up", "find_tile", "multiply", "multiply_any", "prefetch_right"]


@triton.jit
def find_tile(program, tiles_m, tiles_n, GROUP: tl.constexpr):
    """The row and column of a tile; programs that run together share rows and columns, so that the cache has them."""
    if GROUP == 1:
        row = program // tiles_n
        column = program % tiles_n
    else:
        group = program // (GROUP * tiles_n)
        height = tl.minimum(tiles_m - group * GROUP, GROUP)
        inside = program % (GROUP * tiles_n)
        row = group * GROUP + inside % height
        column = inside // height
    return row, column


@triton.jit
def prefetch_right(
    right,
    start,
    first,
    share,
    N: tl.constexpr,
    COUNT: tl.constexpr,
    RIGHT_ROW: tl.constexpr,
    RIGHT_COLUMN: tl.constexpr,
    SHARES: tl.constexpr,
    BLOCK_N: tl.constexpr,
    LINE: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Have the cache read a share of what a tile of columns needs of the right operand, which must be a weight."""
    if EARLY:
        if RIGHT_COLUMN == 1:  # BLOCK_N elements beside each other, in each of COUNT rows
            along = tl.arange(0, (BLOCK_N + LINE - 1) // LINE) * LINE
            rows: tl.constexpr = (COUNT + SHARES - 1) // SHARES
            for row in range(0, rows, 128):
                inner = tl.minimum(share * rows + row + tl.arange(0, 128), COUNT - 1)
                columns = tl.minimum(start + along, N - 1)
                f.prefetch(right + (first + inner)[:, None] * RIGHT_ROW + columns[None, :])
        else:  # COUNT elements beside each other, in each of BLOCK_N columns
            lines: tl.constexpr = (COUNT + LINE * SHARES - 1) // (LINE * SHARES)
            columns = tl.minimum(start + tl.arange(0, BLOCK_N), N - 1)
            for line in range(0, lines, 8):
                inner = tl.minimum((share * lines + line + tl.arange(0, 8)) * LINE, COUNT - 1)
                f.prefetch(right + (first + inner)[None, :] + columns[:, None] * RIGHT_COLUMN)


@triton.jit
def multiply(
    left,
    right,
    rows,
    columns,
    first,
    M: tl.constexpr,
    N: tl.constexpr,
    COUNT: tl.constexpr,
    LEFT_ROW: tl.constexpr,
    LEFT_COLUMN: tl.constexpr,
    RIGHT_ROW: tl.constexpr,
    RIGHT_COLUMN: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """The sum over some of what is summed, of one tile; lanes beyond the edges are zero."""
    inner = tl.arange(0, BLOCK_K)
    left_place = left + rows * LEFT_ROW + (first + inner)[None, :] * LEFT_COLUMN
    right_place = right + (first + inner)[:, None] * RIGHT_ROW + columns * RIGHT_COLUMN
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, COUNT, BLOCK_K):
        if COUNT % BLOCK_K == 0:
            if M % BLOCK_M == 0:
                a = tl.load(left_place)
            else:
                a = tl.load(left_place, mask=rows < M, other=0.0)
            if N % BLOCK_N == 0:
                b = tl.load(right_place)
            else:
                b = tl.load(right_place, mask=columns < N, other=0.0)
        else:
            a = tl.load(left_place, mask=(rows < M) & (inner[None, :] < COUNT - start), other=0.0)
            b = tl.load(right_place, mask=(inner[:, None] < COUNT - start) & (columns < N), other=0.0)
        total = tl.dot(a, b, total, input_precision=PRECISION)
        left_place += BLOCK_K * LEFT_COLUMN
        right_place += BLOCK_K * RIGHT_ROW
    return total


@triton.jit
def multiply_any(
    left,
    right,
    rows,
    columns,
    first,
    M,
    N,
    COUNT,
    LEFT_ROW,
    LEFT_COLUMN,
    RIGHT_ROW,
    RIGHT_COLUMN,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN_M: tl.constexpr,
    EVEN_N: tl.constexpr,
    EVEN_K: tl.constexpr,
):
    """The same for sizes that are known when it runs; EVEN tells which of them are multiples of a block anyway."""
    inner = tl.arange(0, BLOCK_K)
    left_place = left + rows * LEFT_ROW + (first + inner)[None, :] * LEFT_COLUMN
    right_place = right + (first + inner)[:, None] * RIGHT_ROW + columns * RIGHT_COLUMN
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, COUNT, BLOCK_K):
        if not EVEN_K:
            a = tl.load(left_place, mask=(rows < M) & (inner[None, :] < COUNT - start), other=0.0)
            b = tl.load(right_place, mask=(inner[:, None] < COUNT - start) & (columns < N), other=0.0)
        else:
            if EVEN_M:
                a = tl.load(left_place)
            else:
                a = tl.load(left_place, mask=rows < M, other=0.0)
            if EVEN_N:
                b = tl.load(right_place)
            else:
                b = tl.load(right_place, mask=columns < N, other=0.0)
        total = tl.dot(a, b, total, input_precision=PRECISION)
        left_place += BLOCK_K * LEFT_COLUMN
        right_place += BLOCK_K * RIGHT_ROW
    return total


@triton.jit
def add_up(parts, place, live, STEP: tl.constexpr, SPLIT: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The sum of all parts of a tile, always in the same order."""
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for part in tl.static_range(SPLIT):
        total += tl.load(parts + part * STEP + place, mask=live, other=0.0, cache_modifier=".cg")
    return total
