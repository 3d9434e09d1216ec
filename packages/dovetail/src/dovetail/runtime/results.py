"""The outputs of runs with arrays: memory for them before the run, and what the caller gets after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dovetail.errors import InternalError, ResourceError
from dovetail.formats import unpack
from dovetail.plan.manifest import TensorRecord
from dovetail.runtime.objects import give_object
from dovetail.runtime.runner import ProgramRunner
from dovetail.runtime.steps import Array, share_memory, writable
from dovetail.types import TensorFormat

if TYPE_CHECKING:
    from dovetail.runtime.engine import Engine

__all__ = ["Results", "Room", "require_array"]

Room = tuple[int, tuple[int, ...], "np.dtype[Any]"]
"""The value of an output, and the shape and type of the array to make for it."""

_COPIED_BYTES: Final = 16 * 1024
"""Up to this, a provider copies a result faster than it makes an array of its own."""


class Results:
    """The outputs of one program in one context; every array that is given out is the caller's from then on."""

    def __init__(self, engine: Engine, profile: int, runner: ProgramRunner) -> None:
        self._engine = engine
        self._runner = runner
        self._slots = engine.output_slots(profile)

    def bind(self, inputs: Sequence[Array]) -> None:
        """Bind new arrays for all outputs whose shapes are known before the run."""
        runner = self._runner
        for index, dtype, alias in self._slots:
            if dtype is None:
                runner.frame[index] = None  # its step brings the memory
                continue
            shape = runner.physical_shape(index)
            if alias is not None:
                runner.bind(index, share_memory(writable(inputs[alias]), shape or (), dtype))
            elif shape is not None:
                runner.bind(index, _empty(shape, dtype))

    def collect(self) -> list[Any]:
        """What the run made, as the caller gets it."""
        if self._engine.has_plain_outputs:
            return self._collect_plain()
        runner, results = self._runner, []
        for (index, dtype, _), tensor in zip(self._slots, self._engine.manifest.outputs, strict=True):
            array = runner.frame[index]
            shape = runner.shapes[index]
            if tensor.type:
                array = give_object(array, tensor)
            elif dtype is None:
                array, runner.frame[index] = require_array(array, tensor), None
            elif shape is None:
                array = require_array(array, tensor).copy()
            elif tensor.format != "LINEAR":
                array = unpack(array, TensorFormat[tensor.format], shape)
            else:
                runner.frame[index] = None  # the caller owns it now; the next run binds another
            results.append(array)
        return results

    def _collect_plain(self) -> list[Any]:
        """The same where every output is a tensor row by row, as nearly always."""
        frame, shapes, engine = self._runner.frame, self._runner.shapes, self._engine
        results = []
        for (index, dtype, _), expected, tensor in zip(
            self._slots, engine.output_dtypes, engine.manifest.outputs, strict=True
        ):
            array = frame[index]
            if dtype is None or shapes[index] is None:
                if array.__class__ is not np.ndarray or array.dtype is not expected:
                    array = require_array(array, tensor)
                if dtype is not None:
                    results.append(array.copy())
                    continue
            frame[index] = None  # the caller owns it now; the next run binds another
            results.append(array)
        return results

    # the short way

    def find_rooms(self, results: Sequence[Any]) -> list[Room] | None:
        """The memory of all outputs, where it can be made before a run.

        That is so for shapes that the plan knows. Results that a partition made itself must have been what the plan
        says, and be small: large ones are better made by the provider.
        """
        engine, runner, rooms = self._engine, self._runner, []
        if not engine.has_plain_outputs or engine.has_formatted_io or runner.has_element_symbols:
            return None
        for (index, dtype, alias), expected, result in zip(self._slots, engine.output_dtypes, results, strict=True):
            shape = runner.shapes[index]
            is_ours = dtype is not None or (result.shape == shape and result.nbytes <= _COPIED_BYTES)
            if shape is None or alias is not None or not is_ours:
                return None
            rooms.append((index, shape, expected))
        return rooms

    def bind_rooms(self, rooms: Sequence[Room]) -> None:
        """Bind new arrays in the rooms that an earlier run has shown."""
        bind = self._runner.bind
        for index, shape, dtype in rooms:
            bind(index, _empty(shape, dtype))

    def collect_rooms(self, rooms: Sequence[Room]) -> list[Any]:
        """What the run left in them."""
        frame, results = self._runner.frame, []
        for index, _, _ in rooms:
            results.append(frame[index])
            frame[index] = None  # the caller owns it now
        return results


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    try:
        return np.empty(shape, dtype)
    except (MemoryError, ValueError) as error:
        raise ResourceError("out of memory", got=f"{dtype.name} {shape}") from error


def require_array(array: Any, tensor: TensorRecord) -> Array:
    """An output that a step gave must be what the engine says it is: callers size their memory by that."""
    if not isinstance(array, np.ndarray) or array.dtype != np.dtype(tensor.dtype):
        raise InternalError(
            "a step gave another type than the plan says",
            where=f"output '{tensor.name}'",
            expected=tensor.dtype,
            got=getattr(array, "dtype", type(array).__name__),
        )
    return array
