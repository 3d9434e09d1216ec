"""Elements by their index: scatter with a reduction, and pillars onto a map."""
# mypy: ignore-errors

import triton
import triton.language as tl

__all__ = ["claim_places", "copy_elements", "fill_elements", "multiply_in_order", "read_pillars", "scatter_atomically"]


@triton.jit
def copy_elements(source, target, total, BLOCK: tl.constexpr):
    """The same elements, in the type of the target."""
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + lane, tl.load(source + lane, mask=lane < total, other=0), mask=lane < total)


@triton.jit
def fill_elements(target, total, value, BLOCK: tl.constexpr):
    """One number everywhere."""
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + lane, value, mask=lane < total)


@triton.jit
def find_target(
    indices, lane, mask, axis_size, d0, d1, d2, d3, d4, d5, d6, d7, s0, s1, s2, s3, s4, s5, s6, s7, AXIS: tl.constexpr
):
    """Where each update goes, and whether its index is in bounds; sizes are the indices', strides the data's."""
    index = tl.load(indices + lane, mask=mask, other=0).to(tl.int64)
    index = tl.where(index < 0, index + axis_size, index)
    is_sound = mask & (index >= 0) & (index < axis_size)
    rest = lane
    place = tl.zeros_like(lane)
    place += (index if AXIS == 7 else rest % d7) * s7
    rest = rest // d7
    place += (index if AXIS == 6 else rest % d6) * s6
    rest = rest // d6
    place += (index if AXIS == 5 else rest % d5) * s5
    rest = rest // d5
    place += (index if AXIS == 4 else rest % d4) * s4
    rest = rest // d4
    place += (index if AXIS == 3 else rest % d3) * s3
    rest = rest // d3
    place += (index if AXIS == 2 else rest % d2) * s2
    rest = rest // d2
    place += (index if AXIS == 1 else rest % d1) * s1
    rest = rest // d1
    place += (index if AXIS == 0 else rest % d0) * s0
    return place, is_sound


@triton.jit
def scatter_atomically(
    indices,
    updates,
    target,
    total,
    axis_size,
    d0,
    d1,
    d2,
    d3,
    d4,
    d5,
    d6,
    d7,
    s0,
    s1,
    s2,
    s3,
    s4,
    s5,
    s6,
    s7,
    AXIS: tl.constexpr,
    REDUCTION: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Reduce each update into its target; those out of bounds are left out."""
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = lane < total
    place, is_sound = find_target(
        indices, lane, mask, axis_size, d0, d1, d2, d3, d4, d5, d6, d7, s0, s1, s2, s3, s4, s5, s6, s7, AXIS
    )
    place = tl.where(is_sound, place, 0)
    update = tl.load(updates + lane, mask=mask, other=0).to(target.dtype.element_ty)
    if REDUCTION == "add":
        tl.atomic_add(target + place, update, mask=is_sound)
    elif REDUCTION == "max":
        tl.atomic_max(target + place, update, mask=is_sound)
    else:
        tl.atomic_min(target + place, update, mask=is_sound)


@triton.jit
def multiply_in_order(
    indices,
    updates,
    target,
    total,
    axis_size,
    axis_updates,
    axis_stride,
    d0,
    d1,
    d2,
    d3,
    d4,
    d5,
    d6,
    d7,
    s0,
    s1,
    s2,
    s3,
    s4,
    s5,
    s6,
    s7,
    AXIS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Multiply updates into their targets, line by line of the indices: no two lanes share a target."""
    line = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = line < total
    start = (line // axis_stride) * axis_updates * axis_stride + line % axis_stride
    for number in range(axis_updates):
        lane = start + number * axis_stride
        place, is_sound = find_target(
            indices, lane, mask, axis_size, d0, d1, d2, d3, d4, d5, d6, d7, s0, s1, s2, s3, s4, s5, s6, s7, AXIS
        )
        place = tl.where(is_sound, place, 0)
        update = tl.load(updates + lane, mask=is_sound, other=1).to(target.dtype.element_ty)
        value = tl.load(target + place, mask=is_sound, other=1)
        tl.store(target + place, value * update, mask=is_sound)


@triton.jit
def claim_places(places, counts, owners, num_pillars, total, height, width, BLOCK: tl.constexpr):
    """The last pillar of each place of the map."""
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = lane < total
    frame, pillar = lane // num_pillars, (lane % num_pillars).to(tl.int32)
    count = tl.load(counts + frame, mask=mask, other=0)
    y = tl.load(places + lane * 4 + 2, mask=mask, other=-1)
    x = tl.load(places + lane * 4 + 3, mask=mask, other=-1)
    is_there = mask & (pillar < count) & (y >= 0) & (y < height) & (x >= 0) & (x < width)
    place = tl.where(is_there, (frame * height + y) * width + x, 0)
    tl.atomic_max(owners + place, pillar, mask=is_there)


@triton.jit
def read_pillars(features, owners, out, num_pillars, channels, size, total, BLOCK: tl.constexpr):
    """The features of the pillar that has each place, zero where there is none."""
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = lane < total
    place, channel, frame = lane % size, (lane // size) % channels, lane // size // channels
    owner = tl.load(owners + frame * size + place, mask=mask, other=-1)
    source = (frame * num_pillars + owner) * channels + channel
    value = tl.load(features + source, mask=mask & (owner >= 0), other=0)
    tl.store(out + lane, value, mask=mask)
