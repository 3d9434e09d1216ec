"""What all steps share: the class they derive from, and how results are put where they belong."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from dovetail.errors import InputError, PlanError
from dovetail.plan.manifest import StepRecord, ValueRecord
from dovetail.runtime.steps.frame import Frame, Shape

if TYPE_CHECKING:
    from dovetail.runtime.steps.control import Body

__all__ = [
    "Array",
    "BoundStep",
    "Step",
    "argument_getter",
    "check_like",
    "check_same_size",
    "is_placed",
    "own",
    "share_memory",
    "split_results",
    "store",
    "writable",
]

Array = npt.NDArray[Any]
BoundStep = Callable[[], object]
"""A step over the values of one frame."""

_IN_FRAME: Final = frozenset(("planned", "output"))


class Step(ABC):
    """One thing to run, in one context."""

    bodies: Sequence[Body] = ()
    """The programs inside it: branches, or the body of a loop."""
    is_quiet: bool = False
    """Whether floating-point warnings are silenced around it."""

    def __init__(self, record: StepRecord) -> None:
        self.name = record.name
        self.provider = record.provider
        self.record = record

    def find_workspace_bytes(self, shapes: Sequence[Shape | None] | None) -> int:
        """How much scratch memory it needs in an engine without bounds, for values of these shapes.

        None for a step of a body, whose shapes only the run tells.
        """
        return 0 if self.record.asks_workspace else self.record.workspace_bytes

    @abstractmethod
    def bind(self, frame: Frame) -> BoundStep:
        """The step over a frame: what it needs of the frame's fixed values is looked up now, and not in the run."""

    def close(self) -> None:
        """Give back memory of its own."""
        return


def argument_getter(inputs: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A function that fetches these values of a frame as a tuple."""
    if not inputs:
        return lambda values: ()
    if len(inputs) == 1:
        only = inputs[0]
        return lambda values: (values[only],)
    return itemgetter(*inputs)


def is_placed(values: Sequence[ValueRecord], index: int) -> bool:
    """Whether memory for the value exists before its step runs."""
    return index >= 0 and values[index].kind in _IN_FRAME and values[index].dims is not None


def store(values: list[Any], index: int, placed: bool, result: Any, args: tuple[Any, ...], name: str) -> None:
    """Put a result where it belongs: into its memory, or as a new value that shares memory with nothing."""
    if not placed:
        values[index] = own(result, args)
        return
    target, array = values[index], np.asarray(result)
    if array.dtype == target.dtype and array.shape != target.shape and 0 in (array.size, target.size):
        # Sizes are worked out for dims of at least one; where a dim of the inputs is 0, what comes out is right.
        values[index] = own(array, args)
        return
    check_like(array, target, name)
    target[...] = array


def check_like(result: Any, target: Any, name: str, where: str | None = None) -> None:
    """Check that what a step gave has the shape and type that the plan says."""
    if tuple(result.shape) != tuple(target.shape) or result.dtype != target.dtype:
        raise PlanError(
            f"step '{name}' gave another shape or type than the plan says",
            where=where,
            expected=f"{target.dtype} {target.shape}",
            got=f"{result.dtype} {result.shape}",
        )


def split_results(result: Any, expected: int, name: str) -> tuple[Any, ...]:
    """What a kernel returned, for each output; a step that leaves an output of the plan unwritten is an error."""
    parts = result if isinstance(result, tuple) else (result,)
    if len(parts) < expected:
        raise PlanError(f"step '{name}' gave fewer results than the plan says", expected=expected, got=len(parts))
    return parts


def share_memory(source: Array, shape: tuple[int, ...], dtype: np.dtype[Any], *, where: str | None = None) -> Array:
    """A view of all of an array with another shape; it must fill the array exactly."""
    check_same_size(source, shape, dtype, where=where)
    return source.view(dtype).reshape(shape)


def check_same_size(source: Any, shape: tuple[int, ...], dtype: np.dtype[Any], *, where: str | None = None) -> None:
    """Check that an array, of any memory, has as many bytes as another shape and type need."""
    size_bytes = math.prod(source.shape) * source.dtype.itemsize
    if math.prod(shape) * dtype.itemsize != size_bytes:
        raise InputError(
            "an output that shares memory with an input has another size",
            where=where,
            expected=f"{size_bytes} bytes",
            got=f"{dtype.name} {shape}",
        )


def writable(array: Array, *, where: str | None = None) -> Array:
    """The array, which a step will write to through its address: read-only memory would end the process."""
    if not array.flags.writeable:
        raise InputError(
            "an input that is updated in place is read-only",
            where=where,
            fix="pass a writable array; the output is written into the same memory",
        )
    return array


def own(result: Any, args: tuple[Any, ...]) -> Any:
    """A value that outlives its inputs: kernels may return views of them, whose memory the arena reuses."""
    if not isinstance(result, np.ndarray):
        return np.asarray(result) if isinstance(result, np.generic) else result
    if result.base is not None or any(result is arg for arg in args):
        return result.copy()
    return result if result.flags.c_contiguous else np.ascontiguousarray(result)
