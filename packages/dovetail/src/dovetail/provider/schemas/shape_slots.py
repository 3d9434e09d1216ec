"""Which inputs of ONNX operators hold shapes, axes or counts: numbers that a device needs on the host to set work up.

Three things use the table: the rule that keeps the computation of shapes on the CPU, providers whose kernels for
these operators read such an input on the host (``KernelRegistry.register(..., host_inputs=...)``), and networks, which
know by it which tensors decide shapes.
"""

from __future__ import annotations

from typing import Final

__all__ = ["SHAPE_SOURCES", "reads_only_shape", "shape_slots", "size_slots"]

SHAPE_SOURCES: Final = frozenset(("Shape", "Size"))
"""Operators that look at the shape of their input and never at its contents."""

_REDUCTIONS: Final = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare"
_SLOTS: Final[dict[str, tuple[int, ...]]] = {
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "ConstantOfShape": (0,),
    "CumSum": (1,),
    "DFT": (1, 2),
    "Expand": (1,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "Loop": (0, 1),
    "If": (0,),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "NonMaxSuppression": (2,),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "SplitToSequence": (1,),
    "Squeeze": (1,),
    "STFT": (1, 3),
    "Tile": (1, 2),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
    **{f"Reduce{name}": (1,) for name in _REDUCTIONS.split()},
}

_SHAPELESS: Final[dict[str, int]] = {"CumSum": 1, "DFT": 2, "If": 0, "Loop": 1, "NonMaxSuppression": 2, "Trilu": 1}
"""The one slot of an operator that no shape depends on."""


def shape_slots(op: str, domain: str = "") -> frozenset[int]:
    """The positions of an operator's inputs that hold shapes, axes or counts.

    >>> sorted(shape_slots("Slice"))
    [1, 2, 3, 4]
    >>> shape_slots("Relu")
    frozenset()
    """
    return frozenset(_SLOTS.get(op, ())) if domain in ("", "ai.onnx") else frozenset()


def size_slots(op: str, domain: str = "") -> frozenset[int]:
    """The positions of an operator's inputs on whose values the shape of an output depends.

    >>> sorted(shape_slots("Loop")), sorted(size_slots("Loop"))
    ([0, 1], [0])
    """
    return shape_slots(op, domain) - {_SHAPELESS.get(op)}


def reads_only_shape(op: str, domain: str = "") -> bool:
    """Whether an operator needs the shape of its input alone, so that the contents may lie anywhere."""
    return op in SHAPE_SOURCES and domain in ("", "ai.onnx")
