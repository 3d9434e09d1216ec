"""A reformat: one value's layout and type turned into another's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.formats import reformat
from dovetail.plan.manifest import StepRecord, ValueRecord
from dovetail.quantize import convert_type
from dovetail.runtime.steps.base import Array, BoundStep, Step, is_placed, store
from dovetail.runtime.steps.frame import Frame
from dovetail.tensors import TensorSpec
from dovetail.types import TensorFormat

__all__ = ["ReformatStep", "apply_reformat"]


def apply_reformat(array: Array, source: TensorSpec, target: TensorSpec, dims: Sequence[int]) -> Array:
    """Turn an array that lies as ``source`` says into one that lies as ``target`` says."""
    source_format, target_format = source.tensor_format, target.tensor_format
    target_dtype = np.dtype(target.dtype)
    if target_dtype == array.dtype and source.scale == target.scale:
        return reformat(array, source_format, target_format, dims)
    linear = reformat(array, source_format, TensorFormat.LINEAR, dims)
    converted = convert_type(linear, target_dtype, source_scale=source.scale, target_scale=target.scale)
    return reformat(converted, TensorFormat.LINEAR, target_format, dims)


class ReformatStep(Step):
    """Reads one value and writes another."""

    def __init__(self, record: StepRecord, values: Sequence[ValueRecord]) -> None:
        super().__init__(record)
        self._source_index, self._target_index = record.inputs[0], record.outputs[0]
        self._source, self._target = values[self._source_index], values[self._target_index]
        self._placed = is_placed(values, self._target_index)

    def bind(self, frame: Frame) -> BoundStep:
        """The reformat over a frame; it needs the logical shape because a packed array has padding."""
        values, known = frame.values, frame.shapes[self._source_index]

        def run() -> None:
            array = values[self._source_index]
            dims = array.shape if known is None else known
            result = apply_reformat(array, self._source, self._target, dims)
            store(values, self._target_index, self._placed, result, (array,), self.name)

        return run
