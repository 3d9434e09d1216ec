"""Checks of one run of a plugin: it succeeds, writes every output and nothing else, and writes sizes within bounds.

Outputs hold a fill byte before the run. An element that still holds it may be a result, so the run is repeated with
another fill: an element that equals both was not written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from dovetail.build.tune.trial import PluginLayer, PluginTrial
from dovetail.errors import PluginError, ResourceError
from dovetail.formats import packed_shape, unpack
from dovetail.plugin.native.unwritten import UNCHECKED_LAUNCH, can_check_outputs
from dovetail.tensors import TensorSpec
from dovetail.types import DataType

__all__ = ["FailedRunError", "NotRunError", "check_run", "choose_integers"]

Mask: TypeAlias = npt.NDArray[np.bool_]

_FLOAT_FILL: Final = 0xFF
"""A NaN in every floating-point type that has one."""
_FILL: Final = 0xA5
"""No truth value, and a rare integer."""
_SECOND_FILL: Final = 0x5B


class FailedRunError(PluginError):
    """``enqueue`` raised or returned a failure, which may be the fault of its inputs."""


class NotRunError(ResourceError):
    """There is no memory to run a plugin in."""


def choose_integers(layer: PluginLayer) -> tuple[int | None, ...]:
    """Return the values to try in turn for integer inputs of unknown contents, such as indices and sizes.

    0 is an index of every tensor that has elements, so it comes first; None is a mixture of 0 and 1.
    """
    return (0, None, 1) if layer.has_made_up_integers else (None,)


def check_run(trial: PluginTrial, *, strict: bool = False, integers: Sequence[int | None] = (None,)) -> list[str]:
    """Run a plugin once at the tuned shapes and check its writes; its results stay in the memory of the trial.

    Args:
        trial: The plugin with its formats, tactic and workspace size.
        strict: Whether an output that is written in part is an error.
        integers: Values for integer inputs of unknown contents; the next one is tried when ``enqueue`` fails.

    Returns:
        Warnings about outputs that are written in part.

    Raises:
        NotRunError: The tensors do not fit into memory.
        PluginError: The plugin failed or broke its contract.
    """
    warnings = _CheckedRun(trial).check(integers)
    if warnings and strict:
        raise PluginError(warnings[0], where=trial.handle.where, fix="write every element, or build without strict")
    trial.is_checked = True
    return warnings


class _CheckedRun:
    """One run and its repetition."""

    def __init__(self, trial: PluginTrial) -> None:
        self._trial = trial
        self._layer = trial.layer
        self._handle = trial.handle

    def check(self, integers: Sequence[int | None]) -> list[str]:
        """Run, raise where the plugin broke its contract, and return warnings."""
        for number, integer in enumerate(integers, 1):
            try:
                unwritten = self._run(_first_fill, integer)
                break
            except FailedRunError:
                if number == len(integers):
                    raise
        if not any(mask.any() for mask in unwritten.values()):
            return []
        again = self._run(lambda _: _SECOND_FILL, integer)
        return self._judge({index: _intersect(mask, again.get(index)) for index, mask in unwritten.items()})

    def _run(self, fill: Callable[[DataType], int], integer: int | None) -> dict[int, Mask]:
        """Run over filled outputs; return for each output of its own memory which elements still hold the fill."""
        trial, handle = self._trial, self._handle
        try:
            trial.require_memory()
            trial.allocate(fill, integer=integer)
        except (MemoryError, ResourceError) as error:
            raise NotRunError(f"there is not enough memory for its tensors: {_first_line(error)}") from error
        trial.announce()
        self._enqueue()
        overrun = trial.find_overrun()
        if overrun is not None:
            raise PluginError(
                f"enqueue wrote {overrun}",
                where=handle.where,
                expected="writes within the shapes of the descriptors",
                fix="declare the true shape in get_output_shapes and the true size in get_workspace_size",
            )
        return self._find_unwritten(fill)

    def _enqueue(self) -> None:
        trial, handle = self._trial, self._handle
        try:
            try:
                status = trial.enqueue()
                trial.synchronize()
            except (Exception, SystemExit) as error:
                raise handle.describe_failure("enqueue", error) from error
            handle.check_status("enqueue", status)
        except PluginError as error:
            raise FailedRunError(
                error.what, where=error.where, expected=error.expected, got=error.got, fix=error.fix
            ) from error

    def _find_unwritten(self, fill: Callable[[DataType], int]) -> dict[int, Mask]:
        layer, count = self._layer, self._layer.num_inputs
        masks: dict[int, Mask] = {}
        sizes: dict[int, int] = {}
        for index, bound in layer.size_bounds.items():
            memory = self._trial.read_output(index).reshape(-1)[:1]
            masks[index] = _equal_bytes(memory, fill(self._trial.combination[count + index].data_type))
            if not masks[index].any():
                sizes[index] = self._check_size(index, int(memory[0]), bound)
        for index, layout in enumerate(self._trial.combination[count:]):
            sources = layer.data_dependent[index]
            if index in masks or layer.aliases[index] >= 0 or not sizes.keys() >= set(sources.values()):
                continue
            dims = list(layer.opt(count + index))
            for axis, source in sources.items():
                dims[axis] = sizes[source]
            masks[index] = _find_equal(self._trial.read_output(index), dims, layout, fill(layout.data_type))
        return masks

    def _check_size(self, index: int, value: int, bound: int) -> int:
        if not 0 <= value <= bound:
            raise PluginError(
                f"enqueue wrote a size to output {index} that is out of its bound",
                where=self._handle.where,
                expected=f"0 to {bound}",
                got=value,
                fix="write the true size, or declare a larger upper bound in get_output_shapes",
            )
        return value

    def _judge(self, unwritten: Mapping[int, Mask]) -> list[str]:
        """Raise where nothing or no size was written; return warnings about other outputs that are not complete."""
        masks = {index: mask for index, mask in sorted(unwritten.items()) if mask.size}
        untouched = [index for index, mask in masks.items() if mask.all()]
        if masks and len(untouched) == len(masks):
            raise self._describe_unwritten("enqueue returned success and wrote none of its outputs")
        for index in self._layer.size_bounds:
            if index in untouched:
                raise self._describe_unwritten(f"enqueue did not write output {index}, which is a size tensor")
        return [_describe_partial(index, mask) for index, mask in masks.items() if mask.any()]

    def _describe_unwritten(self, what: str) -> PluginError:
        fix = "write every output in enqueue, at its address and in the type of its descriptor"
        if can_check_outputs(self._handle):
            fix = UNCHECKED_LAUNCH
        return PluginError(what, where=self._handle.where, expected="every output written", fix=fix)


def _describe_partial(index: int, mask: Mask) -> str:
    num_written = int(mask.size - mask.sum())
    how_many = f"{num_written} of {mask.size} elements" if num_written else "no element"
    first = tuple(int(n) for n in np.argwhere(mask)[0])
    return f"enqueue wrote {how_many} of output {index}; the first one left is {first}, and its value is undefined"


def _first_fill(dtype: DataType) -> int:
    return _FLOAT_FILL if dtype.is_float else _FILL


def _find_equal(memory: Any, dims: Sequence[int], layout: TensorSpec, fill: int) -> Mask:
    """Which elements of the logical tensor at the start of an output's memory hold the fill byte in all their bytes."""
    if layout.data_type.bits < 8:
        return _equal_bytes(memory.reshape(-1)[: (math.prod(dims) + 1) // 2], fill)
    shape = packed_shape(dims, layout.tensor_format)
    equal = _equal_bytes(memory.reshape(-1)[: math.prod(shape)], fill).reshape(shape)
    return unpack(equal.view(np.uint8), layout.tensor_format, tuple(dims)).astype(np.bool_)


def _equal_bytes(array: Any, fill: int) -> Mask:
    """Which elements of a vector have the fill in every byte."""
    flat = np.ascontiguousarray(array)
    return np.asarray((flat.view(np.uint8).reshape(flat.size, flat.itemsize) == fill).all(axis=1))


def _intersect(first: Mask, second: Mask | None) -> Mask:
    """Elements unwritten in both runs; none where the second run wrote another shape."""
    if second is None or second.shape != first.shape:
        return np.zeros(first.shape, np.bool_)
    return first & second


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
