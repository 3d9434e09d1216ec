"""The attention matrix of DeBERTa from its three parts."""
# mypy: ignore-errors

import triton
import triton.language as tl

__all__ = ["add_disentangled"]


@triton.jit
def add_disentangled(
    content,
    to_position,
    from_position,
    out,
    total,
    length,
    width,
    span,
    log_middle,
    log_factor,
    factor,
    scale0,
    scale1,
    scale2,
    out_scale,
    IS_QUANTIZED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Each element of the result: one of the content, and one of each other matrix in the column of its distance."""
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = lane < total
    key, query, head = (lane % length).to(tl.int32), ((lane // length) % length).to(tl.int32), lane // length // length
    distance = query - key
    far = tl.log(tl.maximum(tl.abs(distance), 1).to(tl.float32))
    middle = span // 2
    shared = tl.ceil((far - log_middle) * log_factor).to(tl.int32) + middle
    shared = tl.where(distance < 0, -shared, shared)
    bucket = tl.where(tl.abs(distance) <= middle, distance, shared) + span
    column = tl.minimum(tl.maximum(bucket, 0), 2 * span - 1)
    one = tl.load(content + lane, mask=mask, other=0).to(tl.float32) * scale0
    two = tl.load(to_position + (head * length + query) * width + column, mask=mask, other=0).to(tl.float32) * scale1
    three = tl.load(from_position + (head * length + key) * width + column, mask=mask, other=0).to(tl.float32) * scale2
    result = (one + two + three) * factor
    if IS_QUANTIZED:
        result = result / out_scale
        below = tl.floor(result)
        rest = result - below
        is_odd = (below.to(tl.int32) % 2) != 0
        result = tl.where((rest > 0.5) | ((rest == 0.5) & is_odd), below + 1.0, below)
        result = tl.minimum(tl.maximum(result, -128.0), 127.0)
    tl.store(out + lane, result, mask=mask)
