"""A product of matrices in tiles, with bias and activation: every size is a constant."""
# mypy: ignore-errors

import triton
import triton.language as tl

from dovetail_cuda.kernels import functions as f

__all__ = ["gemm"]


@triton.jit
def gemm(
    left,
    right,
    bias,
    result,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    LEFT_ROW: tl.constexpr,
    LEFT_COLUMN: tl.constexpr,
    LEFT_BATCH: tl.constexpr,
    RIGHT_ROW: tl.constexpr,
    RIGHT_COLUMN: tl.constexpr,
    RIGHT_BATCH: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    ALPHA: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """One tile of one product of the batch; the strides say how the operands lie."""
    batch = tl.program_id(1).to(tl.int64)
    tiles_n: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    rows = (tl.program_id(0) // tiles_n) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = (tl.program_id(0) % tiles_n) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    left_place = left + batch * LEFT_BATCH + rows[:, None] * LEFT_ROW + inner[None, :] * LEFT_COLUMN
    right_place = right + batch * RIGHT_BATCH + inner[:, None] * RIGHT_ROW + columns[None, :] * RIGHT_COLUMN
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        a_mask = (rows[:, None] < M) & (inner[None, :] < K - start)
        b_mask = (inner[:, None] < K - start) & (columns[None, :] < N)
        a = tl.load(left_place + start * LEFT_COLUMN, mask=a_mask, other=0.0)
        b = tl.load(right_place + start * RIGHT_ROW, mask=b_mask, other=0.0)
        total = tl.dot(a, b, total, input_precision=PRECISION)
    total = total * ALPHA
    if HAS_BIAS:
        total += tl.load(bias + columns, mask=columns < N, other=0.0).to(tl.float32)[None, :]
    if ACTIVATION == "relu":
        total = tl.maximum(total, 0.0)
    if ACTIVATION == "gelu_tanh":
        total = f.gelu_tanh(total)
    place = result + batch * (M * N) + rows[:, None] * N + columns[None, :]
    tl.store(place, total.to(result.dtype.element_ty), mask=(rows[:, None] < M) & (columns[None, :] < N))
