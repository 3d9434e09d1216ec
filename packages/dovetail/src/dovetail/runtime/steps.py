"""Steps bound for one context: each takes the frame (values by number) and writes its outputs into it.

The last slot of a frame is always None, so an absent input (-1) needs no special case. Planned outputs lie in the
frame before the run and are written in place; other outputs are put there by their step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextvars import Context
from operator import itemgetter
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dovetail.errors import InputError, InternalError
from dovetail.plan.manifest import StepRecord, ValueRecord
from dovetail.runtime.direct import bind_directly, write_directly

__all__ = [
    "Array",
    "Enter",
    "Frame",
    "KernelStep",
    "Segments",
    "Step",
    "argument_getter",
    "check_same_size",
    "is_placed",
    "make_segments",
    "own",
    "run_segments",
    "share_memory",
    "store",
    "writable",
]

Array = npt.NDArray[Any]
Frame = list[Any]
Step = Callable[[Frame], None]

IN_FRAME: Final = frozenset(("planned", "output"))


Enter = Callable[..., Any]
"""Calls a function with its arguments where floating-point warnings are silenced."""
Segments = list[tuple[Enter | None, list[Step]]]
"""Steps in order, in groups: how a group is entered when it is silenced, and its steps."""


def make_segments(steps: Sequence[Step]) -> Segments:
    """Group neighbours; kernels are silenced together, plugins see the caller's settings."""
    segments: Segments = []
    for step in steps:
        is_quiet = isinstance(step, KernelStep)
        if not segments or (segments[-1][0] is not None) != is_quiet:
            segments.append((_make_silence() if is_quiet else None, []))
        segments[-1][1].append(step.short_path() if isinstance(step, KernelStep) else step)
    return segments


def _make_silence() -> Enter:
    """A context of its own in which NumPy warns of nothing: to enter it costs a fraction of what ``np.errstate`` does.

    It can be entered by one thread at a time, as segments are: they belong to one execution context, and kernels, which
    are all that runs in it, never come back here. It is empty, so that it holds nothing of whoever made the engine.
    """
    silence = Context()
    silence.run(np.seterr, all="ignore")
    return silence.run


def run_segments(segments: Segments, frame: Frame) -> None:
    """Run all steps in order."""
    for enter, steps in segments:
        if enter is not None:
            enter(_run_steps, steps, frame)
        else:
            for step in steps:
                step(frame)


def _run_steps(steps: Sequence[Step], frame: Frame) -> None:
    for step in steps:
        step(frame)


class KernelStep:
    """A kernel of a provider: a function of arrays."""

    __slots__ = ("_args", "_function", "_inputs", "_outputs", "_stays", "name")

    def __init__(self, record: StepRecord, values: Sequence[ValueRecord], function: Callable[..., Any]) -> None:
        self.name = record.name
        self._function = function
        self._args = argument_getter(record.inputs)
        self._outputs = [(index, is_placed(values, index)) for index in record.outputs]
        self._inputs = record.inputs
        self._stays = all(index < 0 or _stays(values, index) for index in record.inputs)
        """Whether its inputs are the same arrays in every run over the same buffers."""

    def __call__(self, frame: Frame) -> None:
        """Run the kernel once."""
        args = self._args(frame)
        self._store(frame, args, self._function(*args))

    def short_path(self) -> Step:
        """The step as a plain function where it can be: one output, which lies in planned memory.

        Nearly all kernels are so, and a closure over the slots costs half of what the general form does. A function
        with an attribute ``into``, its form with the output as one more last argument, then writes there itself.
        """
        if len(self._outputs) != 1 or not self._outputs[0][1]:
            return self
        step = self._one_input() if len(self._inputs) == 1 else self._many_inputs()
        into = getattr(self._function, "into", None)
        if into is not None:
            step = write_directly(into, step, self._inputs, self._outputs[0][0])
            if self._stays:
                step.bind = bind_directly(into, (*self._inputs, self._outputs[0][0]))  # type: ignore[attr-defined]
        step.name = self.name  # type: ignore[attr-defined]  # what a failure is reported under
        return step

    def _one_input(self) -> Step:
        function, source, target, store_slowly = self._function, self._inputs[0], self._outputs[0][0], self._store
        array_type = np.ndarray

        def run(frame: Frame) -> None:
            result, out = function(frame[source]), frame[target]
            if result.__class__ is array_type and result.shape == out.shape and result.dtype == out.dtype:
                out[...] = result
            else:
                store_slowly(frame, (frame[source],), result)

        return run

    def _many_inputs(self) -> Step:
        function, fetch, target, store_slowly = self._function, self._args, self._outputs[0][0], self._store
        array_type = np.ndarray

        def run(frame: Frame) -> None:
            args = fetch(frame)
            result, out = function(*args), frame[target]
            if result.__class__ is array_type and result.shape == out.shape and result.dtype == out.dtype:
                out[...] = result
            else:
                store_slowly(frame, args, result)

        return run

    def _store(self, frame: Frame, args: tuple[Any, ...], result: Any) -> None:
        parts = result if isinstance(result, tuple) else (result,)
        if len(parts) < len(self._outputs):
            raise too_few_results(self.name, len(self._outputs), len(parts))
        for (index, placed), part in zip(self._outputs, parts, strict=False):
            if index >= 0:
                store(frame, index, placed, part, args, self.name)


def argument_getter(inputs: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A function that fetches these slots of a frame as a tuple."""
    if not inputs:
        return lambda frame: ()
    if len(inputs) == 1:
        only = inputs[0]
        return lambda frame: (frame[only],)
    return itemgetter(*inputs)


def is_placed(values: Sequence[ValueRecord], index: int) -> bool:
    """Whether memory for the value exists before its step runs."""
    return index >= 0 and values[index].kind in IN_FRAME and values[index].dims is not None


def _stays(values: Sequence[ValueRecord], index: int) -> bool:
    return values[index].kind in ("constant", "input") or is_placed(values, index)


def store(frame: Frame, index: int, placed: bool, result: Any, args: tuple[Any, ...], name: str) -> None:
    """Put a result where it belongs: into its memory, or as a new value that shares memory with nothing."""
    if not placed:
        frame[index] = own(result, args)
        return
    target, array = frame[index], np.asarray(result)
    if array.shape == target.shape and array.dtype == target.dtype:
        target[...] = array
    elif array.dtype == target.dtype and 0 in (array.size, target.size):
        # Sizes are worked out for dims of at least one; where a dim of the inputs is 0, what comes out is right.
        frame[index] = own(array, args)
    else:
        raise mismatch(name, target, array)


def mismatch(name: str, target: Array, result: Array) -> InternalError:
    """The error for a step whose result is not what the plan says."""
    return InternalError(
        f"step '{name}' gave another shape or type than the plan says",
        expected=f"{target.dtype.name} {target.shape}",
        got=f"{result.dtype.name} {result.shape}",
    )


def too_few_results(name: str, expected: int, got: int) -> InternalError:
    """The error for a step that leaves an output of the plan unwritten."""
    return InternalError(f"step '{name}' gave fewer results than the plan says", expected=expected, got=got)


def share_memory(source: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """A view of all of an array with another shape; it must fill the array exactly."""
    check_same_size(source, shape, dtype)
    return source.view(dtype).reshape(shape)


def check_same_size(source: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Check that an array, of any memory, has as many bytes as another shape and type need."""
    size_bytes = math.prod(source.shape) * source.dtype.itemsize
    if math.prod(shape) * dtype.itemsize != size_bytes:
        raise InputError(
            "an output that shares memory with an input has another size",
            expected=f"{size_bytes} bytes",
            got=f"{dtype.name} {shape}",
        )


def writable(array: Array) -> Array:
    """The array, which a plugin will write to through its address: read-only memory would end the process."""
    if not array.flags.writeable:
        raise InputError(
            "an input that is updated in place is read-only",
            fix="pass a writable array; the plugin writes its output into the same memory",
        )
    return array


def own(result: Any, args: tuple[Any, ...]) -> Any:
    """A value that outlives its inputs: kernels may return views of them, whose memory the arena reuses."""
    if not isinstance(result, np.ndarray):
        return np.asarray(result) if isinstance(result, np.generic) else result
    if result.base is not None or any(result is arg for arg in args):
        return result.copy()
    return result if result.flags.c_contiguous else np.ascontiguousarray(result)
