"""What a plugin declares about its outputs: types and shapes, checked for form, and shapes at given input sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dovetail.errors import UsageError
from dovetail.expr import Constant, Expr, IDimensionExpr, SizeTensor, evaluate
from dovetail.plugin.check.host.calls import read
from dovetail.plugin.handle import MAX_OUTPUTS
from dovetail.rules import Broken
from dovetail.types import DataType, Dims

__all__ = ["DeclaredLayer", "find_size_tensor_fault", "read_num_outputs", "read_output_shapes", "read_output_types"]

Shapes = list[tuple[int, ...]]


@dataclass(frozen=True)
class DeclaredLayer:
    """The declared outputs."""

    types: tuple[DataType, ...]
    shapes: tuple[tuple[Expr, ...], ...]

    @property
    def size_tensors(self) -> dict[int, SizeTensor]:
        """Output index -> the size tensor that this output holds."""
        found = [expr for shape in self.shapes for expr in shape if isinstance(expr, SizeTensor)]
        return {expr.output_index: expr for expr in found}

    def known_shapes(self, values: Mapping[str, int]) -> Shapes:
        """The shapes that are known before a run, -1 where a size tensor decides."""
        return self._shapes(values, lambda size: -1)

    def largest_shapes(self, values: Mapping[str, int]) -> Shapes:
        """The shapes that memory is sized for."""
        return self._shapes(values, lambda size: evaluate(size.upper, values))

    def tuned_shapes(self, values: Mapping[str, int]) -> Shapes:
        """The shapes that are tuned for."""
        return self._shapes(values, lambda size: evaluate(size.opt, values))

    def final_shapes(self, values: Mapping[str, int], sizes: Mapping[int, int]) -> Shapes:
        """The shapes after a run that left these values in the size tensors."""
        return self._shapes(values, lambda size: sizes[size.output_index])

    def _shapes(self, values: Mapping[str, int], size_of: Callable[[SizeTensor], int]) -> Shapes:
        return [
            tuple(size_of(expr) if isinstance(expr, SizeTensor) else evaluate(expr, values) for expr in shape)
            for shape in self.shapes
        ]


def read_num_outputs(build: Any) -> int:
    """The number of outputs; Broken unless it is a positive integer that a network can have."""
    count = read(build, "num_outputs")
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise Broken(f"num_outputs is {count!r}, expected a positive integer")
    if count > MAX_OUTPUTS:
        raise Broken(f"num_outputs is {count}, expected at most {MAX_OUTPUTS}")
    return count


def read_output_types(returned: Any, count: int) -> tuple[DataType, ...]:
    """The declared types; Broken unless there is one DataType for each output."""
    items = _as_list(returned, "get_output_data_types", count)
    for index, item in enumerate(items):
        if not isinstance(item, DataType):
            raise Broken(f"get_output_data_types: output {index} has {item!r}, expected a DataType")
    return tuple(items)


def read_output_shapes(returned: Any, count: int, values: Mapping[str, int]) -> tuple[tuple[Expr, ...], ...]:
    """The declared shapes; Broken unless they are expressions that give sizes for these values."""
    shapes = []
    for index, item in enumerate(_as_list(returned, "get_output_shapes", count)):
        dims = _as_list(item, f"get_output_shapes: output {index}", None)
        shapes.append(tuple(_checked(index, axis, expr, values) for axis, expr in enumerate(dims)))
        if len(dims) > Dims.MAX_DIMS:
            raise Broken(f"get_output_shapes: output {index} has {len(dims)} dimensions, at most {Dims.MAX_DIMS} exist")
    return tuple(shapes)


def find_size_tensor_fault(layer: DeclaredLayer) -> str | None:
    """What is wrong with the outputs that are declared as size tensors, if anything."""
    for index, size in layer.size_tensors.items():
        if not 0 <= index < len(layer.types):
            return f"declare_size_tensor names output {index}, but there are {len(layer.types)} outputs"
        if layer.shapes[index]:
            return f"output {index} is a size tensor and has {len(layer.shapes[index])} dimensions, expected none"
        if layer.types[index] not in (DataType.INT32, DataType.INT64):
            return f"output {index} is a size tensor of type {layer.types[index].name}, expected INT32 or INT64"
        if isinstance(size.opt, Constant) and isinstance(size.upper, Constant) and size.opt.value > size.upper.value:
            return f"output {index} is a size tensor tuned at {size.opt}, above its upper bound {size.upper}"
    return None


def _checked(index: int, axis: int, expr: Any, values: Mapping[str, int]) -> Expr:
    where = f"get_output_shapes: output {index}, dimension {axis}"
    if not isinstance(expr, IDimensionExpr):
        raise Broken(
            f"{where} is {expr!r}, expected a dimension expression",
            fix="use inputs[i][j], or exprBuilder.constant(n) for a number",
        )
    bound: Any = expr.upper if isinstance(expr, SizeTensor) else expr
    try:
        size = evaluate(bound, values)
    except UsageError as error:
        raise Broken(f"{where} cannot be computed: {error.what}") from None
    if size < 0:
        raise Broken(f"{where} is {expr}, which is {size} at {_describe(values)}")
    return bound if not isinstance(expr, SizeTensor) else expr


def _as_list(returned: Any, what: str, count: int | None) -> Sequence[Any]:
    try:
        items = list(returned)
    except TypeError:
        raise Broken(f"{what} is {returned!r}, expected a list") from None
    if count is not None and len(items) != count:
        raise Broken(f"{what} returned {len(items)} entries, expected {count}: one for each output")
    return items


def _describe(values: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())
