"""A kernel in Triton's language."""

import triton
import triton.language as tl

__all__ = ["relu"]


@triton.jit
def relu(x, y, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Zero for what is negative."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.maximum(tl.load(x + at, at < n, 0.0), 0.0), at < n)
