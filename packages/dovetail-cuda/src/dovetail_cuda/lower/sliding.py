"""How windows slide over the spatial dimensions of images: sizes only, for pooling and convolutions alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Sliding", "plan_sliding"]

Ints = Sequence[int]


@dataclass(frozen=True, kw_only=True)
class Sliding:
    """How windows slide over the spatial dimensions."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    outputs: tuple[int, ...]


def plan_sliding(
    spatial: Ints, kernel: Ints, strides: Ints, dilations: Ints, pads: Ints, auto_pad: str, ceil_mode: int
) -> Sliding:
    """How many windows there are, and the padding they need."""
    rank = len(spatial)
    steps, spread = tuple(strides) or (1,) * rank, tuple(dilations) or (1,) * rank
    reach = [spread[axis] * (kernel[axis] - 1) + 1 for axis in range(rank)]
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        outputs = [-(-spatial[axis] // steps[axis]) for axis in range(rank)]
        total = [max((outputs[a] - 1) * steps[a] + reach[a] - spatial[a], 0) for a in range(rank)]
        small, large = [size // 2 for size in total], [size - size // 2 for size in total]
        before, after = (small, large) if auto_pad == "SAME_UPPER" else (large, small)
    else:
        given = [0] * 2 * rank if auto_pad == "VALID" or not pads else list(pads)
        before, after = given[:rank], given[rank:]
        room = [spatial[a] + before[a] + after[a] - reach[a] for a in range(rank)]
        outputs = [(-(-room[a] // steps[a]) if ceil_mode else room[a] // steps[a]) + 1 for a in range(rank)]
        if ceil_mode:  # a window must begin in the image or in the padding before it
            outputs = [n - ((n - 1) * steps[a] >= spatial[a] + before[a]) for a, n in enumerate(outputs)]
    return Sliding(
        kernel=tuple(kernel),
        strides=steps,
        dilations=spread,
        before=tuple(before),
        after=tuple(after),
        outputs=tuple(outputs),
    )
