"""The outputs of runs with arrays: memory for them before the run, and what the caller gets after it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from dovetail.errors import PlanError, ResourceError
from dovetail.formats import unpack
from dovetail.plan.manifest import Manifest, ProgramRecord, TensorRecord
from dovetail.runtime.bind.objects import give_object
from dovetail.runtime.steps.base import Array, share_memory, writable
from dovetail.runtime.steps.frame import Shape
from dovetail.runtime.steps.partition import results_of_partitions
from dovetail.types import TensorFormat

__all__ = ["Outputs", "require_array"]


class _OutputSlot:
    """One output of a bound run."""

    __slots__ = ("alias", "dtype", "is_made", "is_plain", "logical", "shape", "tensor")

    def __init__(
        self, tensor: TensorRecord, logical: Shape | None, shape: Shape | None, alias: int | None, *, is_made: bool
    ) -> None:
        self.tensor = tensor
        self.logical = logical
        self.shape = shape
        """The physical shape; None when only the run tells."""
        self.alias = alias
        """The position of the input whose memory it shares."""
        self.is_made = is_made
        """Whether its step brings the memory, which is the caller's from then on."""
        self.dtype = np.dtype(tensor.dtype)
        self.is_plain = not tensor.type and tensor.format == "LINEAR"

    def make(self, inputs: Sequence[Any]) -> Array | None:
        """Memory for the output; None when its step brings it."""
        if self.is_made or self.shape is None:
            return None
        # Where the input lies on a device, the border shares that memory, and this is what it is copied to.
        if self.alias is not None and isinstance(inputs[self.alias], np.ndarray):
            source = writable(inputs[self.alias], where=f"input '{self.tensor.alias}'")
            return share_memory(source, self.shape, self.dtype, where=f"output '{self.tensor.name}'")
        try:
            return np.empty(self.shape, self.dtype)
        except (MemoryError, ValueError) as error:
            raise ResourceError("out of memory", got=f"{self.dtype.name} {self.shape}") from error

    def finish(self, result: Any) -> Any:
        """What the run left, as the caller gets it."""
        if self.is_plain:
            if result.__class__ is not np.ndarray or result.dtype is not self.dtype:
                result = require_array(result, self.tensor)
            # What is neither made by a partition nor written to memory of the caller's may be a buffer of its step.
            return result if self.is_made or self.shape is not None else result.copy()
        if self.tensor.type:
            return give_object(result, self.tensor)
        if self.is_made:
            return require_array(result, self.tensor)
        if self.logical is None:
            return require_array(result, self.tensor).copy()
        return unpack(result, TensorFormat[self.tensor.format], self.logical)


class Outputs:
    """The outputs of one bound run; every array that is given out is the caller's from then on."""

    def __init__(
        self,
        manifest: Manifest,
        program: ProgramRecord,
        logical: Sequence[Shape | None],
        physical: Sequence[Shape | None],
    ) -> None:
        inputs = {tensor.name: position for position, tensor in enumerate(manifest.inputs)}
        made = results_of_partitions(program)
        self._slots = [
            _OutputSlot(
                tensor,
                logical[position],
                physical[position],
                None if tensor.alias is None else inputs[tensor.alias],
                is_made=index in made,
            )
            for position, (index, tensor) in enumerate(zip(program.outputs, manifest.outputs, strict=True))
        ]

    def make(self, inputs: Sequence[Any], skip: Collection[int] = ()) -> list[Any]:
        """New memory for all outputs that the caller's runs need it for, but for those at the skipped positions."""
        if not skip:
            return [slot.make(inputs) for slot in self._slots]
        return [None if position in skip else slot.make(inputs) for position, slot in enumerate(self._slots)]

    def finish(self, results: Sequence[Any], skip: Collection[int] = ()) -> list[Any]:
        """What a run made, as the caller gets it; results at the skipped positions stay as they are."""
        if not skip:
            return [slot.finish(result) for slot, result in zip(self._slots, results)]  # noqa: B905 - one a slot
        return [
            result if position in skip else slot.finish(result)
            for position, (slot, result) in enumerate(zip(self._slots, results, strict=True))
        ]


def require_array(array: Any, tensor: TensorRecord) -> Array:
    """An output that a step gave must be what the engine says it is: callers size their memory by that."""
    if not isinstance(array, np.ndarray) or array.dtype != np.dtype(tensor.dtype):
        raise PlanError(
            "a step gave another type than the plan says",
            where=f"output '{tensor.name}'",
            expected=tensor.dtype,
            got=getattr(array, "dtype", type(array).__name__),
        )
    return array
