"""A reformat bound for one context: one value's layout and type turned into another's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.formats import reformat
from dovetail.plan.manifest import StepRecord, ValueRecord
from dovetail.quantize import convert_type
from dovetail.runtime.steps import Array, Frame, is_placed, store
from dovetail.types import TensorFormat

__all__ = ["ReformatStep", "apply_reformat"]


def apply_reformat(array: Array, source: ValueRecord, target: ValueRecord, dims: Sequence[int]) -> Array:
    """Turn an array that lies as ``source`` says into one that lies as ``target`` says."""
    source_format, target_format = TensorFormat[source.format], TensorFormat[target.format]
    target_dtype = np.dtype(target.dtype)
    if target_dtype == array.dtype and source.scale == target.scale:
        return reformat(array, source_format, target_format, dims)
    linear = reformat(array, source_format, TensorFormat.LINEAR, dims)
    converted = convert_type(linear, target_dtype, source_scale=source.scale, target_scale=target.scale)
    return reformat(converted, TensorFormat.LINEAR, target_format, dims)


class ReformatStep:
    """Reads one slot of the frame and writes another."""

    __slots__ = ("_dims", "_placed", "_source", "_source_index", "_target", "_target_index", "name")

    def __init__(self, record: StepRecord, values: Sequence[ValueRecord]) -> None:
        self.name = record.name
        self._source_index, self._target_index = record.inputs[0], record.outputs[0]
        self._source, self._target = values[self._source_index], values[self._target_index]
        self._placed = is_placed(values, self._target_index)
        self._dims: Sequence[int] | None = None

    def set_shapes(self, frame: Frame, shapes: Sequence[Sequence[int] | None]) -> None:
        """Take the logical shape; packing needs it because a packed array has padding."""
        self._dims = shapes[self._source_index]

    def __call__(self, frame: Frame) -> None:
        """Read one slot, write the other."""
        array = frame[self._source_index]
        dims = array.shape if self._dims is None else self._dims
        result = apply_reformat(array, self._source, self._target, dims)
        store(frame, self._target_index, self._placed, result, (array,), self.name)
