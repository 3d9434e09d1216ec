"""The geometry of sliding windows: padding rules, output sizes and the strided view, shared by conv and pooling."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels._checks import require, require_room, spread

__all__ = ["Window", "accumulate_taps", "make_window", "pad_spatial", "view_windows"]


@dataclass(frozen=True, kw_only=True)
class Window:
    """A kernel that slides over the spatial axes of one input."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    """Padding before the first element of each axis."""
    ends: tuple[int, ...]
    """Padding after the last element of each axis, as the attributes ask for it."""
    overhangs: tuple[int, ...]
    """Elements past the end padding that the last window of ``ceil_mode`` still covers."""
    outputs: tuple[int, ...]

    @property
    def extents(self) -> tuple[int, ...]:
        """Elements from the first to the last tap of the kernel, dilation included."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))


def make_window(
    op: str,
    sizes: Sequence[int],
    kernel: Sequence[int],
    *,
    strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
) -> Window:
    """Resolve padding and output sizes of a window over an input with these spatial sizes."""
    rank = len(sizes)
    require(len(kernel) == rank, op, "the kernel and the input differ in rank", expected=rank, got=len(kernel))
    steps = spread(strides, 1, rank, op=op, name="strides")
    spacings = spread(dilations, 1, rank, op=op, name="dilations")
    require(min((*kernel, *steps, *spacings), default=1) > 0, op, "kernel, strides and dilations must be positive")
    both = spread(pads, 0, 2 * rank, op=op, name="pads")
    require(min(both, default=0) >= 0, op, "'pads' must not be negative", got=both)
    # With automatic padding the sizes are fixed by the stride alone, so ceil_mode has nothing left to round.
    rounds_up = bool(ceil_mode) and auto_pad == "NOTSET"
    axes = []
    for i, size in enumerate(sizes):
        extent = (kernel[i] - 1) * spacings[i] + 1
        begin, end = _resolve_pads(auto_pad, size, extent, steps[i], both[i], both[rank + i])
        axes.append((begin, end, *_count_outputs(op, size, extent, steps[i], begin, end, rounds_up)))
    # The images are no smaller than one byte an element, so this much at least will be padded or made.
    require_room(op, [n + begin + end for n, (begin, end, *_) in zip(sizes, axes, strict=True)], np.dtype(np.int8))
    require_room(op, [count for *_, count, _ in axes], np.dtype(np.int8))
    begins, ends, outputs, overhangs = zip(*axes, strict=True) if axes else ((), (), (), ())
    return Window(
        kernel=tuple(int(k) for k in kernel),
        strides=steps,
        dilations=spacings,
        begins=begins,
        ends=ends,
        overhangs=overhangs,
        outputs=outputs,
    )


def _resolve_pads(auto_pad: str, size: int, extent: int, stride: int, begin: int, end: int) -> tuple[int, int]:
    if auto_pad == "VALID":
        return 0, 0
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        return begin, end
    total = max((-(-size // stride) - 1) * stride + extent - size, 0)
    smaller = total // 2
    return (smaller, total - smaller) if auto_pad == "SAME_UPPER" else (total - smaller, smaller)


def _count_outputs(
    op: str, size: int, extent: int, stride: int, begin: int, end: int, rounds_up: bool
) -> tuple[int, int]:
    room = size + begin + end - extent
    require(room >= 0, op, "the kernel is larger than the padded input", expected=f"<= {room + extent}", got=extent)
    count = room // stride + 1
    # A window that starts in the end padding is dropped, however the division rounds.
    if rounds_up and room % stride and count * stride < size + begin:
        count += 1
    return count, max((count - 1) * stride + extent - (size + begin + end), 0)


def pad_spatial(x: Array, window: Window, value: float, *, overhang: bool = True) -> Array:
    """Surround the spatial axes with a value, so that every window lies inside the result."""
    extra = window.overhangs if overhang else (0,) * len(window.overhangs)
    amounts = [(b, e + o) for b, e, o in zip(window.begins, window.ends, extra, strict=True)]
    if not any(map(any, amounts)):
        return x
    return np.pad(x, [(0, 0)] * (x.ndim - len(amounts)) + amounts, constant_values=value)


def view_windows(padded: Array, window: Window) -> Array:
    """All windows of a padded input without copying: (..., *outputs, *kernel)."""
    rank = len(window.kernel)
    if rank == 0:
        return padded
    lead = padded.ndim - rank
    view = np.lib.stride_tricks.sliding_window_view(padded, window.extents, axis=tuple(range(lead, padded.ndim)))
    starts = tuple(slice(None, n * s, s) for n, s in zip(window.outputs, window.strides, strict=True))
    taps = tuple(slice(None, None, d) for d in window.dilations)
    return view[(slice(None),) * lead + starts + taps]


def accumulate_taps(
    columns: Array, strides: tuple[int, ...], dilations: tuple[int, ...], sizes: tuple[int, ...]
) -> Array:
    """The adjoint of ``view_windows``: add (batch, channel, *kernel, *positions) into images of these sizes."""
    rank = len(sizes)
    kernel, counts = columns.shape[2 : 2 + rank], columns.shape[2 + rank :]
    y = np.zeros((*columns.shape[:2], *sizes), dtype=columns.dtype)
    for tap in itertools.product(*map(range, kernel)):
        place: Any = (slice(None), slice(None), *tap)
        where = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s) if n else slice(0, 0)
            for t, d, s, n in zip(tap, dilations, strides, counts, strict=True)
        )
        y[:, :, *where] += columns[place]
    return y
