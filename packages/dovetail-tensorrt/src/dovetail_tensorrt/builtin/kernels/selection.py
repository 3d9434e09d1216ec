"""The largest elements of rows, in order, and non-maximum suppression over them.

Keys are INT32 numbers with the order of the values. Rows are compacted, cut down to the largest K by a search over the
bits of the keys, ordered by counting for each how many come before it, and then read. Of equal keys the first wins.
"""
# mypy: ignore-errors

import triton
import triton.language as tl

__all__ = [
    "add_counts",
    "compact_scores",
    "count_scores",
    "decode_boxes",
    "order_chosen",
    "read_chosen",
    "select_largest",
    "suppress_boxes",
    "write_keys",
]


@triton.jit
def order_float(values):
    """Signed integers with the order of FP32 numbers; zeros are equal, NaN is the largest."""
    values = tl.where(values == 0, 0.0, values)
    bits = values.to(tl.int32, bitcast=True)
    key = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return tl.where(values == values, key, 0x7FC00000)


@triton.jit
def write_keys(
    values, keys, places, length, inner, IS_FLOAT: tl.constexpr, IS_LARGEST: tl.constexpr, BLOCK: tl.constexpr
):
    """Keys and places of all elements of a row along an axis with ``inner`` elements behind it."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = lane < length
    start = (row // inner) * length * inner + row % inner
    value = tl.load(values + start + lane.to(tl.int64) * inner, mask=mask, other=0)
    if IS_FLOAT:
        key = order_float(value.to(tl.float32))
    else:
        key = value.to(tl.int32)
    if not IS_LARGEST:
        key = -1 - key
    tl.store(keys + row * length + lane, key, mask=mask)
    tl.store(places + row * length + lane, lane, mask=mask)


@triton.jit
def count_scores(scores, counts, elements, classes, background, threshold, blocks, BLOCK: tl.constexpr):
    """How many scores of each block are wanted."""
    image, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    lane = block * BLOCK + tl.arange(0, BLOCK)
    score = tl.load(scores + image * elements + lane, mask=lane < elements, other=0).to(tl.float32)
    wanted = (lane < elements) & (score >= threshold) & (lane % classes != background)
    tl.store(counts + image * blocks + block, tl.sum(wanted.to(tl.int32), 0))


@triton.jit
def add_counts(counts, totals, blocks, BLOCK: tl.constexpr):
    """Replace the count of each block by that of all blocks before it, and write the total."""
    image = tl.program_id(0).to(tl.int64)
    total = 0
    for start in range(0, blocks, BLOCK):
        lane = start + tl.arange(0, BLOCK)
        count = tl.load(counts + image * blocks + lane, mask=lane < blocks, other=0)
        before = tl.cumsum(count, 0) - count
        tl.store(counts + image * blocks + lane, total + before, mask=lane < blocks)
        total += tl.sum(count, 0)
    tl.store(totals + image, total)


@triton.jit
def compact_scores(scores, counts, keys, places, elements, classes, background, threshold, blocks, BLOCK: tl.constexpr):
    """Keys and places of the scores that are wanted, one behind the other."""
    image, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    lane = block * BLOCK + tl.arange(0, BLOCK)
    score = tl.load(scores + image * elements + lane, mask=lane < elements, other=0).to(tl.float32)
    wanted = (lane < elements) & (score >= threshold) & (lane % classes != background)
    slot = tl.load(counts + image * blocks + block) + tl.cumsum(wanted.to(tl.int32), 0) - 1
    tl.store(keys + image * elements + slot, order_float(score), mask=wanted)
    tl.store(places + image * elements + slot, lane, mask=wanted)


@triton.jit
def select_largest(
    keys,
    places,
    totals,
    chosen_keys,
    chosen_places,
    chosen_totals,
    length,
    limit,
    HAS_TOTALS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The ``limit`` largest keys of a row with their places, in the order of the row."""
    row = tl.program_id(0).to(tl.int64)
    keys += row * length
    places += row * length
    chosen_keys += row * limit
    chosen_places += row * limit
    if HAS_TOTALS:
        count = tl.load(totals + row)
    else:
        count = length
    least = tl.zeros((), tl.int64) - 2147483648
    ties = count
    if count > limit:
        # The largest number that at least ``limit`` keys reach, found from its highest bit down.
        step = tl.zeros((), tl.int64) + 2147483648
        while step > 0:
            reached = 0
            for start in range(0, count, BLOCK):
                lane = start + tl.arange(0, BLOCK)
                key = tl.load(keys + lane, mask=lane < count, other=0).to(tl.int64)
                reached += tl.sum(((lane < count) & (key >= least + step)).to(tl.int32), 0)
            least = tl.where(reached >= limit, least + step, least)
            step = step // 2
        above = 0
        for start in range(0, count, BLOCK):
            lane = start + tl.arange(0, BLOCK)
            key = tl.load(keys + lane, mask=lane < count, other=0).to(tl.int64)
            above += tl.sum(((lane < count) & (key > least)).to(tl.int32), 0)
        ties = limit - above
    used = 0
    tied = 0
    for start in range(0, count, BLOCK):
        lane = start + tl.arange(0, BLOCK)
        key = tl.load(keys + lane, mask=lane < count, other=0)
        place = tl.load(places + lane, mask=lane < count, other=0)
        is_tie = (lane < count) & (key.to(tl.int64) == least)
        rank = tied + tl.cumsum(is_tie.to(tl.int32), 0) - 1
        taken = ((lane < count) & (key.to(tl.int64) > least)) | (is_tie & (rank < ties))
        slot = used + tl.cumsum(taken.to(tl.int32), 0) - 1
        tl.store(chosen_keys + slot, key, mask=taken)
        tl.store(chosen_places + slot, place, mask=taken)
        used += tl.sum(taken.to(tl.int32), 0)
        tied += tl.sum(is_tie.to(tl.int32), 0)
    tl.store(chosen_totals + row, used)


@triton.jit
def order_chosen(keys, places, totals, ordered, limit, BLOCK: tl.constexpr, SPAN: tl.constexpr):
    """Places of the chosen keys in descending order: each goes behind as many as are before it."""
    row = tl.program_id(0).to(tl.int64)
    count = tl.load(totals + row)
    own = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mine = tl.load(keys + row * limit + own, mask=own < count, other=0)
    rank = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, count, SPAN):
        other = start + tl.arange(0, SPAN)
        key = tl.load(keys + row * limit + other, mask=other < count, other=0)
        is_before = (key[None, :] > mine[:, None]) | ((key[None, :] == mine[:, None]) & (other[None, :] < own[:, None]))
        rank += tl.sum((is_before & (other[None, :] < count)).to(tl.int32), 1)
    place = tl.load(places + row * limit + own, mask=own < count, other=0)
    tl.store(ordered + row * limit + rank, place, mask=own < count)


@triton.jit
def read_chosen(values, ordered, found, indices, length, inner, limit, BLOCK: tl.constexpr):
    """Values and INT32 indices of the ordered places, along the axis they come from."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = lane < limit
    place = tl.load(ordered + row * limit + lane, mask=mask, other=0)
    outer, rest = row // inner, row % inner
    value = tl.load(values + (outer * length + place) * inner + rest, mask=mask, other=0)
    target = (outer * limit + lane) * inner + rest
    tl.store(found + target, value, mask=mask)
    tl.store(indices + target, place, mask=mask)


@triton.jit
def decode_boxes(
    boxes,
    anchors,
    ordered,
    totals,
    corners,
    elements,
    classes,
    num_boxes,
    per_box,
    anchor_stride,
    limit,
    HAS_ANCHORS: tl.constexpr,
    HAS_CENTERS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Boxes of the ordered places as corners in FP32."""
    image = tl.program_id(0).to(tl.int64)
    lane = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = lane < tl.load(totals + image)
    place = tl.load(ordered + image * limit + lane, mask=mask, other=0)
    anchor = place // classes
    label = tl.where(per_box > 1, place % classes, 0)
    box = boxes + ((image * num_boxes + anchor) * per_box + label) * 4
    a = tl.load(box, mask=mask, other=0).to(tl.float32)
    b = tl.load(box + 1, mask=mask, other=0).to(tl.float32)
    c = tl.load(box + 2, mask=mask, other=0).to(tl.float32)
    d = tl.load(box + 3, mask=mask, other=0).to(tl.float32)
    if HAS_ANCHORS:
        own = anchors + image * anchor_stride + anchor.to(tl.int64) * 4
        p = tl.load(own, mask=mask, other=0).to(tl.float32)
        q = tl.load(own + 1, mask=mask, other=0).to(tl.float32)
        r = tl.load(own + 2, mask=mask, other=0).to(tl.float32)
        s = tl.load(own + 3, mask=mask, other=0).to(tl.float32)
    if HAS_CENTERS:
        if HAS_ANCHORS:
            a, b = a * r + p, b * s + q
            c, d = r * tl.exp(c), s * tl.exp(d)
        c, d = c * 0.5, d * 0.5
        a, b, c, d = a - c, b - d, a + c, b + d
    elif HAS_ANCHORS:
        a, c = tl.minimum(a, c) + tl.minimum(p, r), tl.maximum(a, c) + tl.maximum(p, r)
        b, d = tl.minimum(b, d) + tl.minimum(q, s), tl.maximum(b, d) + tl.maximum(q, s)
    target = corners + (image * limit + lane) * 4
    tl.store(target, a, mask=mask)
    tl.store(target + 1, b, mask=mask)
    tl.store(target + 2, c, mask=mask)
    tl.store(target + 3, d, mask=mask)


@triton.jit
def suppress_boxes(
    corners,
    ordered,
    totals,
    scores,
    counts,
    out_boxes,
    out_scores,
    out_classes,
    elements,
    classes,
    limit,
    most,
    iou_threshold,
    IS_AGNOSTIC: tl.constexpr,
    HAS_LOGITS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Keep the best box that is left, drop what overlaps it, and so on; one program an image."""
    image = tl.program_id(0).to(tl.int64)
    total = tl.load(totals + image)
    lane = tl.arange(0, BLOCK)
    mask = lane < total
    box = corners + (image * limit + lane) * 4
    a = tl.load(box, mask=mask, other=0)
    b = tl.load(box + 1, mask=mask, other=0)
    c = tl.load(box + 2, mask=mask, other=0)
    d = tl.load(box + 3, mask=mask, other=0)
    low_y, high_y, low_x, high_x = tl.minimum(a, c), tl.maximum(a, c), tl.minimum(b, d), tl.maximum(b, d)
    area = tl.where((high_y > low_y) & (high_x > low_x), (high_y - low_y) * (high_x - low_x), 0.0)
    label = tl.load(ordered + image * limit + lane, mask=mask, other=0) % classes
    left = mask.to(tl.int32)
    kept = 0
    best = tl.min(tl.where(left != 0, lane, BLOCK), 0)
    while (kept < most) & (best < BLOCK):
        own = corners + (image * limit + best) * 4
        p, q, r, s = tl.load(own), tl.load(own + 1), tl.load(own + 2), tl.load(own + 3)
        place = tl.load(ordered + image * limit + best)
        score = tl.load(scores + image * elements + place).to(tl.float32)
        if HAS_LOGITS:
            score = 1.0 / (1.0 + tl.exp(-score))
        row = image * most + kept
        tl.store(out_boxes + row * 4, p)
        tl.store(out_boxes + row * 4 + 1, q)
        tl.store(out_boxes + row * 4 + 2, r)
        tl.store(out_boxes + row * 4 + 3, s)
        tl.store(out_scores + row, score)
        tl.store(out_classes + row, place % classes)
        top, bottom, first, last = tl.minimum(p, r), tl.maximum(p, r), tl.minimum(q, s), tl.maximum(q, s)
        own_area = tl.where((bottom > top) & (last > first), (bottom - top) * (last - first), 0.0)
        tall = tl.minimum(high_y, bottom) - tl.maximum(low_y, top)
        wide = tl.minimum(high_x, last) - tl.maximum(low_x, first)
        common = tl.where((tall > 0) & (wide > 0), tall * wide, 0.0)
        union = area + own_area - common
        share = tl.where((common > 0) & (union > 0), common / tl.where(union > 0, union, 1.0), 0.0)
        near = share >= iou_threshold
        if not IS_AGNOSTIC:
            near = near & (label == place % classes)
        left = tl.where(near | (lane == best), 0, left)
        kept += 1
        best = tl.min(tl.where(left != 0, lane, BLOCK), 0)
    tl.store(counts + image, kept)
    while kept < most:
        row = image * most + kept
        tl.store(out_boxes + row * 4 + tl.arange(0, 4), tl.zeros((4,), tl.float32))
        tl.store(out_scores + row, 0.0)
        tl.store(out_classes + row, 0)
        kept += 1
