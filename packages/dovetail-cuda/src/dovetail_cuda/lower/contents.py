"""Shapes that a model computes: small integer tensors whose elements are known as sizes when a plan is built.

Exported models take shapes apart and put them together again: Shape, Gather, Concat, a little arithmetic, and then a
Reshape or an Expand. Such tensors are followed here element by element, over arrays of integers and of sizes that
vary, so that whoever needs one as a shape has it. Nothing of it runs on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from dovetail_cuda.lower.expr import Expr, apply, literal, position, select
from dovetail_cuda.lower.index import Index, flatten
from dovetail_cuda.lower.indexing import find_axes, find_axis
from dovetail_cuda.lower.pointwise import ONNX_TYPES
from dovetail_cuda.lower.registry import registry
from dovetail_cuda.lower.sizes import as_size, greatest, is_fixed, least
from dovetail_cuda.lower.tensors import Tensor
from dovetail_cuda.lower.types import TYPES

__all__ = ["find_contents", "find_shape_contents", "is_contents", "make_contents_tensor"]

_MOST_ELEMENTS: Final = 64
"""Tensors with more elements are no shapes."""
_INTEGERS: Final = ("bool", "int32", "int64")

Attributes = Mapping[str, Any]
Rule = Callable[[Sequence[Any], Attributes], Any]


def is_contents(array: Any) -> bool:
    """Whether an array of a weight may be part of a shape."""
    return array.dtype.name in _INTEGERS and array.size <= _MOST_ELEMENTS


def find_contents(op: str, arrays: Sequence[Any], attributes: Attributes) -> Any | None:
    """What an operator makes of tensors whose elements are known; None where that is not known, or no shape."""
    rule = _RULES.get(op)
    made = None if rule is None else rule(arrays, attributes)
    return None if made is None or made.size > _MOST_ELEMENTS else _settle(made)


def find_shape_contents(shape: Sequence[int], op: str, attributes: Attributes) -> Any:
    """What Shape and Size make of a tensor of a shape."""
    if op == "Size":
        return _settle(np.array(_count(shape), object))
    part = list(shape)[slice(attributes.get("start", 0), attributes.get("end"))]
    return _settle(_array(part))


def _count(sizes: Sequence[int]) -> int:
    """How many elements there are."""
    total = 1
    for size in sizes:
        total = total * size
    return total


@registry.register("Shape", since=15, types={"T": TYPES})
def shape_of(x: Tensor, *, start: int = 0, end: int | None = None) -> Tensor:
    """The sizes of a tensor, or some of them."""
    return make_contents_tensor(find_shape_contents(x.shape, "Shape", {"start": start, "end": end}), "int64")


@registry.register("Shape", since=1, until=14, types={"T": TYPES})
def whole_shape_of(x: Tensor) -> Tensor:
    """The sizes of a tensor."""
    return make_contents_tensor(find_shape_contents(x.shape, "Shape", {}), "int64")


@registry.register("Size", since=1, types={"T": TYPES})
def size_of_tensor(x: Tensor) -> Tensor:
    """How many elements a tensor has."""
    return make_contents_tensor(find_shape_contents(x.shape, "Size", {}), "int64")


def make_contents_tensor(array: Any, dtype: str) -> Tensor:
    """Such a tensor for those who read it on the device: each element is written down where it is read."""
    flat = [as_size(each) for each in array.ravel()]

    def pull(at: Sequence[Index], guard: Expr | None) -> Expr:
        place = flatten(at, array.shape)
        if not place.terms:
            return literal(flat[place.constant], dtype)
        result = literal(flat[-1], dtype)
        for number, each in reversed(list(enumerate(flat[:-1]))):
            is_it = apply("{0} == {1}", position(place), literal(number, "int64"), dtype="bool")
            result = select(is_it, literal(each, dtype), result)
        return result

    return Tensor(shape=array.shape, dtype=dtype, pull=pull)


def _array(elements: Sequence[Any], shape: Sequence[int] | None = None) -> Any:
    made = np.empty(len(elements), object)
    for place, each in enumerate(elements):
        made[place] = each
    return made if shape is None else made.reshape(shape)


def _settle(array: Any) -> Any:
    """Plain integers where nothing varies."""
    if array.dtype != object:
        return array
    elements = list(array.ravel())
    if all(isinstance(each, bool | np.bool_) for each in elements) and elements:
        return np.array(elements, bool).reshape(array.shape)
    if all(is_fixed(each) for each in elements):
        return np.array([int(each) for each in elements], np.int64).reshape(array.shape)
    return array


def _map(function: Callable[..., Any]) -> Rule:
    """A rule that goes element by element; None for an element is nothing that is known."""

    def rule(arrays: Sequence[Any], attributes: Attributes) -> Any | None:
        whole = np.broadcast_arrays(*arrays)
        made = [function(*each) for each in zip(*(array.ravel() for array in whole), strict=True)]
        return None if any(each is None for each in made) else _array(made, whole[0].shape)

    return rule


def _divide(one: Any, two: Any) -> Any | None:
    """Integers are divided towards zero, which is down where none is negative."""
    a, b = as_size(one), as_size(two)
    return a // b if least(a) >= 0 and least(b) > 0 else None


def _is_equal(one: Any, two: Any) -> bool | None:
    difference = as_size(one) - as_size(two)
    if is_fixed(difference):
        return bool(difference == 0)
    return False if least(difference) > 0 or greatest(difference) < 0 else None


def _extreme(sign: int) -> Callable[..., Any]:
    def choose(first: Any, *others: Any) -> Any | None:
        best = as_size(first)
        for each in map(as_size, others):
            if least((best - each) * sign) >= 0:
                continue
            if least((each - best) * sign) < 0:
                return None
            best = each
        return best

    return choose


def _choose(condition: Any, one: Any, two: Any) -> Any:
    return one if condition else two


def _gather(arrays: Sequence[Any], attributes: Attributes) -> Any | None:
    data, indices = arrays
    if indices.dtype == object:
        return None
    return np.asarray(np.take(data, indices, axis=attributes.get("axis", 0)), data.dtype)


def _slice(arrays: Sequence[Any], attributes: Attributes) -> Any | None:
    data, starts, ends, *rest = arrays
    if any(each.dtype == object for each in arrays[1:]):
        return None
    axes = rest[0] if rest else range(len(starts))
    steps = rest[1] if len(rest) > 1 else [1] * len(starts)
    cuts = [slice(None)] * data.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        stop = None if step < 0 and end < -data.shape[axis] else int(end)
        cuts[find_axis(axis, data.ndim)] = slice(int(start), stop, int(step))
    return data[tuple(cuts)]


def _concat(arrays: Sequence[Any], attributes: Attributes) -> Any:
    return np.concatenate(arrays, axis=attributes["axis"])


def _unsqueeze(arrays: Sequence[Any], attributes: Attributes) -> Any:
    rank = arrays[0].ndim + np.size(arrays[1])
    return np.expand_dims(arrays[0], tuple(find_axis(axis, rank) for axis in np.ravel(arrays[1])))


def _squeeze(arrays: Sequence[Any], attributes: Attributes) -> Any:
    axes = None if len(arrays) < 2 else find_axes(arrays[1], arrays[0].ndim)
    return np.squeeze(arrays[0], axes)


def _reshape(arrays: Sequence[Any], attributes: Attributes) -> Any | None:
    data, shape = arrays
    return None if shape.dtype == object or 0 in shape else data.reshape([int(size) for size in shape])


def _cast(arrays: Sequence[Any], attributes: Attributes) -> Any | None:
    dtype = ONNX_TYPES.get(attributes["to"])
    if dtype not in _INTEGERS or (dtype == "bool") != (arrays[0].dtype == bool):
        return None
    return arrays[0] if arrays[0].dtype == object else arrays[0].astype(dtype)


def _fill(arrays: Sequence[Any], attributes: Attributes) -> Any | None:
    value = np.asarray(attributes.get("value", np.zeros(1, np.float32)))
    if arrays[0].dtype == object or value.dtype.name not in _INTEGERS or np.prod(arrays[0]) > _MOST_ELEMENTS:
        return None
    return np.full([int(size) for size in arrays[0]], value.reshape(-1)[0])


def _multiply_all(arrays: Sequence[Any], attributes: Attributes) -> Any | None:
    if len(arrays) > 1 or attributes.get("axes") not in (None, [0], (0,)) or arrays[0].ndim != 1:
        return None
    total = _count([as_size(each) for each in arrays[0]])
    return _array([total], (1,) if attributes.get("keepdims", 1) else ())


_RULES: Final[Mapping[str, Rule]] = {
    "Add": _map(lambda one, two: as_size(one) + as_size(two)),
    "Cast": _cast,
    "Concat": _concat,
    "ConstantOfShape": _fill,
    "Div": _map(_divide),
    "Equal": _map(_is_equal),
    "Gather": _gather,
    "Identity": lambda arrays, attributes: arrays[0],
    "Max": _map(_extreme(1)),
    "Min": _map(_extreme(-1)),
    "Mul": _map(lambda one, two: as_size(one) * as_size(two)),
    "ReduceProd": _multiply_all,
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Sub": _map(lambda one, two: as_size(one) - as_size(two)),
    "Unsqueeze": _unsqueeze,
    "Where": _map(_choose),
}
