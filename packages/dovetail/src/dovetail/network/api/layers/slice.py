"""The slice layer: a start, a size and a stride for each axis, and what lies outside the input."""

# ruff: noqa: A002 - the contract names arguments after builtins

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from dovetail.network.api.core import NetworkCore
from dovetail.network.api.emission import INT64_MIN
from dovetail.network.api.enums import LayerType, SampleMode
from dovetail.network.api.layers.base import ILayer
from dovetail.network.api.properties import Property, choice, dims, optional

if TYPE_CHECKING:
    from dovetail.network.api.emission import Emitter
    from dovetail.network.api.tensor import ITensor

__all__ = ["ISliceLayer", "SliceLayers"]

_Numbers = list[int] | ir.Value
"""Numbers that are known now, or a 1-D INT64 value."""


class ISliceLayer(ILayer):
    """Takes element ``start + i * stride`` for i below the size, along each axis.

    Inputs 1 to 3 take the place of start, shape and stride, input 4 is the value of FILL, input 5 takes the place of
    the axes. A stride of 0 repeats one element.
    """

    __slots__ = ()

    _layer_type = LayerType.SLICE
    _kind = "Slice"
    _input_names = ("input", "start", "shape", "stride", "fill", "axes")
    _shape_inputs = frozenset({1, 2, 3, 5})

    start = Property(dims(), "The first element of each axis.", resets=1)
    shape = Property(dims(minimum=0), "The size of the output along each axis.", resets=2)
    stride = Property(dims(), "The step along each axis.", resets=3)
    axes = Property(optional(dims()), "The axes that start, shape and stride speak of; None means all.", resets=5)
    mode = Property(choice(SampleMode), "What lies outside the input.")

    def __init__(self, network: NetworkCore, tensor: ITensor, start: Any, shape: Any, stride: Any) -> None:
        super().__init__(network, [tensor])
        self.start, self.shape, self.stride = start, shape, stride
        self.axes = None
        self.mode = SampleMode.STRICT_BOUNDS

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        x = e.input(0)
        axes = self._find_axes(e, x)
        start, size, stride = (
            self._numbers(e, index, name, len(axes)) for index, name in ((1, "start"), (2, "shape"), (3, "stride"))
        )
        strict = self.mode == SampleMode.STRICT_BOUNDS
        if strict:
            _check_bounds(e, x, axes, start, size, stride)
        if strict and isinstance(stride, list) and 0 not in stride:
            return [self._plain(e, x, axes, start, size, stride)]
        return [self._sampled(e, x, axes, start, size, stride)]

    def _find_axes(self, e: Emitter, x: ir.Value) -> list[int]:
        given = e.optional_input(5)
        if given is None:
            numbers = list(range(e.rank(x))) if self.axes is None else list(self.axes)
        else:
            known = e.constant_ints(e.int64(given))
            if known is None:
                raise e.error("'axes' must be known when building", got=e.describe(given), fix="use add_constant")
            numbers = known
        axes = [e.axis(axis, e.rank(x), "axes") for axis in numbers]
        if len(set(axes)) != len(axes):
            raise e.error("'axes' names an axis twice", got=axes)
        return axes

    def _numbers(self, e: Emitter, index: int, name: str, count: int) -> _Numbers:
        given = e.optional_input(index)
        if given is None:
            numbers = list(self._values[name])
            e.require_length(numbers, count, name)
            return numbers
        e.require_rank(given, 1, name)
        if e.dims(given)[0] not in (count, None):
            raise e.error(f"'{name}' has the wrong length", expected=count, got=e.describe(given))
        value = e.int64(given)
        known = e.constant_ints(value)
        return value if known is None else known

    def _plain(
        self, e: Emitter, x: ir.Value, axes: list[int], start: _Numbers, size: _Numbers, stride: list[int]
    ) -> ir.Value:
        if isinstance(start, list) and isinstance(size, list):
            ends: ir.Value = e.ints(_ends(start, size, stride), "ends")
        else:
            ends = _dynamic_ends(e, _value(e, start, "start"), _value(e, size, "shape"), stride)
        steps = None if set(stride) == {1} else e.ints(stride, "stride")
        y = e.op("Slice", x, _value(e, start, "start"), ends, e.ints(axes, "axes"), steps)
        # Reshaping to the size says it exactly, and makes a slice that leaves the bounds an error when it runs.
        return e.reshape(y, size) if isinstance(size, ir.Value) and axes == list(range(e.rank(x))) else y

    def _sampled(
        self, e: Emitter, x: ir.Value, axes: list[int], start: _Numbers, size: _Numbers, stride: _Numbers
    ) -> ir.Value:
        y = x
        inside: ir.Value | None = None
        for position, axis in enumerate(axes):
            first, count, step = (_pick(e, numbers, position) for numbers in (start, size, stride))
            if (first, count, step) == (0, e.dims(x)[axis], 1):
                continue
            indices = _indices(e, first, count, step)
            mapped, valid = self._map(e, indices, e.dims(x)[axis] or e.to_scalar(e.dim(x, axis), "size"))
            y = e.op("Gather", y, mapped, axis=axis)
            if valid is not None:
                after = list(range(1, e.rank(x) - axis))
                valid = e.op("Unsqueeze", valid, e.ints(after, "after")) if after else valid
                inside = valid if inside is None else e.op("And", inside, valid)
        if inside is not None:
            y = e.op("Where", inside, y, self._fill_value(e, x))
        return y if y is not x else e.op("Identity", x)

    def _fill_value(self, e: Emitter, x: ir.Value) -> ir.Value:
        given = e.optional_input(4)
        if given is None:
            return e.scalar(0, "fill", e.dtype(x))
        return e.cast(e.to_scalar(given, "fill"), e.dtype(x))

    def _map(self, e: Emitter, indices: list[int] | ir.Value, size: int | ir.Value) -> tuple[ir.Value, ir.Value | None]:
        """Indices inside the input for indices that may lie outside, and for FILL which of them lay inside."""
        if isinstance(indices, list) and isinstance(size, int):
            return self._map_now(e, np.asarray(indices, np.int64), size)
        index = indices if isinstance(indices, ir.Value) else e.ints(indices, "indices")
        limit = size if isinstance(size, ir.Value) else e.scalar(size, "size")
        if self.mode == SampleMode.WRAP:
            return e.op("Mod", index, limit), None
        if self.mode == SampleMode.CLAMP:
            return _clamp(e, index, limit), None
        if self.mode == SampleMode.REFLECT:
            return _reflect(e, index, limit), None
        if self.mode == SampleMode.FILL:
            not_before = e.op("GreaterOrEqual", index, e.scalar(0, "zero"))
            return _clamp(e, index, limit), e.op("And", not_before, e.op("Less", index, limit))
        return index, None

    def _map_now(self, e: Emitter, index: np.ndarray[Any, Any], size: int) -> tuple[ir.Value, ir.Value | None]:
        if self.mode == SampleMode.WRAP:
            return e.constant(index % max(size, 1), "indices"), None
        if self.mode == SampleMode.REFLECT:
            period = max(2 * size - 2, 1)
            folded = np.abs(index) % period
            return e.constant(np.where(folded >= size, period - folded, folded), "indices"), None
        if self.mode == SampleMode.STRICT_BOUNDS:
            return e.constant(index, "indices"), None
        clamped = e.constant(np.clip(index, 0, max(size - 1, 0)), "indices")
        inside = (index >= 0) & (index < size)
        needs_fill = self.mode == SampleMode.FILL and not inside.all()
        return clamped, e.constant(inside, "inside") if needs_fill else None


def _check_bounds(e: Emitter, x: ir.Value, axes: list[int], start: _Numbers, size: _Numbers, stride: _Numbers) -> None:
    if not (isinstance(start, list) and isinstance(size, list) and isinstance(stride, list)):
        return
    for axis, first, count, step in zip(axes, start, size, stride, strict=True):
        limit, last = e.dims(x)[axis], first + (count - 1) * step
        if count and (min(first, last) < 0 or (limit is not None and max(first, last) >= limit)):
            raise e.error(
                f"the slice leaves the bounds of axis {axis}",
                expected=f"elements 0 to {limit - 1 if limit is not None else 'the last'}",
                got=f"{first} to {last} (start {first}, shape {count}, stride {step})",
                fix="change start, shape and stride, or set another mode",
            )


def _ends(start: list[int], size: list[int], stride: list[int]) -> list[int]:
    ends = []
    for first, count, step in zip(start, size, stride, strict=True):
        end = first + (count - 1) * step + (1 if step > 0 else -1) if count else first
        ends.append(end if end >= 0 else INT64_MIN)  # a negative end would count from the back
    return ends


def _dynamic_ends(e: Emitter, start: ir.Value, size: ir.Value, stride: list[int]) -> ir.Value:
    if set(stride) == {1}:
        return e.op("Add", start, size)
    one = e.scalar(1, "one")
    reach = e.op("Mul", e.op("Sub", size, one), e.ints(stride, "steps"))
    past = e.ints([1 if step > 0 else -1 for step in stride], "past")
    ends = e.op("Add", e.op("Add", start, reach), past)
    return e.op("Where", e.op("Less", ends, e.scalar(0, "zero")), e.scalar(INT64_MIN, "front"), ends)


def _value(e: Emitter, numbers: _Numbers, role: str) -> ir.Value:
    return numbers if isinstance(numbers, ir.Value) else e.ints(numbers, role)


def _pick(e: Emitter, numbers: _Numbers, position: int) -> int | ir.Value:
    if isinstance(numbers, list):
        return numbers[position]
    return e.op("Gather", numbers, e.scalar(position, "position"), axis=0)


def _indices(e: Emitter, first: int | ir.Value, count: int | ir.Value, step: int | ir.Value) -> list[int] | ir.Value:
    if isinstance(first, int) and isinstance(count, int) and isinstance(step, int):
        return [first + number * step for number in range(count)]
    first, count, step = (
        number if isinstance(number, ir.Value) else e.scalar(number, role)
        for number, role in ((first, "first"), (count, "count"), (step, "step"))
    )
    counted = e.op("Range", e.scalar(0, "zero"), count, e.scalar(1, "one"))
    return e.op("Add", e.op("Mul", counted, step), first)


def _clamp(e: Emitter, index: ir.Value, limit: ir.Value) -> ir.Value:
    return e.op("Min", e.op("Max", index, e.scalar(0, "zero")), e.op("Sub", limit, e.scalar(1, "one")))


def _reflect(e: Emitter, index: ir.Value, limit: ir.Value) -> ir.Value:
    one, two = e.scalar(1, "one"), e.scalar(2, "two")
    period = e.op("Max", e.op("Sub", e.op("Mul", limit, two), two), one)
    folded = e.op("Mod", e.op("Abs", index), period)
    return e.op("Where", e.op("GreaterOrEqual", folded, limit), e.op("Sub", period, folded), folded)


class SliceLayers(NetworkCore):
    """The method that adds a slice."""

    __slots__ = ()

    def add_slice(
        self,
        input: ITensor,
        start: Iterable[int],
        shape: Iterable[int],
        stride: Iterable[int],
    ) -> ISliceLayer:
        """Add a slice; with ``set_input`` any of the numbers can come from a tensor."""
        tensor = self._check_tensor(input, where="add_slice", argument="input")
        return self._add_layer(ISliceLayer(self, tensor, start, shape, stride))
