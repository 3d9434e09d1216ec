"""The shapes of a program as functions of its inputs: pure, and evaluated once for each set of input shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dovetail.errors import InputError, ResourceError
from dovetail.expr import Dim, Expr, Symbol, compile_expr, symbols_of
from dovetail.plan.manifest import ProgramRecord, SymbolRecord
from dovetail.runtime.steps.frame import Shape

__all__ = ["ShapePlan"]

_MAX_ELEMENTS: Final = 2**47


class ShapePlan:
    """The shapes of a program as compiled functions of its symbols.

    Args:
        program: Whose shapes.
        told: Further dims that callers are told: the bounds of outputs.
    """

    def __init__(self, program: ProgramRecord, told: Sequence[Dim] = ()) -> None:
        self._program = program
        outside = set(program.inputs)
        used = _symbols_in_shapes(program, told)
        self._symbols = [s for s in program.symbols if s.value in outside and (s.source == "dim" or s.name in used)]
        self._names = [s.name for s in self._symbols]
        self.has_elements = any(s.source == "element" for s in self._symbols)
        """Whether shapes depend on the contents of inputs, which can change from run to run."""
        self._shapes: list[list[Callable[[Sequence[int]], int]]] = []
        self._shape_of: dict[int, int] = {}
        """The number of each value's shape: few shapes occur, so each is compiled and evaluated once."""
        self._compile()
        self.placed = list(self._shape_of)
        """The values whose shape inputs decide."""
        self._input_names = {index: program.values[index].name for index in program.inputs}
        self._repeats = [
            (index, axis, self._names.index(dim.name))
            for index in program.inputs
            for axis, dim in enumerate(program.values[index].dims or ())
            if isinstance(dim, Symbol) and dim.name in self._names
        ]

    def _compile(self) -> None:
        known, numbers = set(self._names), dict[tuple[Dim, ...], int]()
        for index, value in enumerate(self._program.values):
            if value.dims is None or value.kind not in ("planned", "output"):
                continue
            exprs = [dim for dim in value.dims if dim is not None and symbols_of(dim) <= known]
            if len(exprs) < len(value.dims):
                continue
            if value.dims not in numbers:
                numbers[value.dims] = len(self._shapes)
                self._shapes.append([compile_expr(expr, self._names) for expr in exprs])
            self._shape_of[index] = numbers[value.dims]

    def symbol_values(self, shapes: Sequence[Shape | None], inputs: Sequence[Any]) -> tuple[int, ...]:
        """What the symbols are for inputs of these shapes; contents are read where shapes depend on them."""
        places = {index: position for position, index in enumerate(self._program.inputs)}
        values = []
        for symbol in self._symbols:
            position = places[symbol.value]
            try:
                values.append(_read(symbol, shapes[position], inputs[position] if inputs else None))
            except IndexError:  # the plan knows neither rank nor size of some inputs
                what = "dimension" if symbol.source == "dim" else "element"
                raise InputError(
                    f"it has no {what} {symbol.index}, which other shapes depend on",
                    where=f"input '{self._input_names[symbol.value]}'",
                    got=shapes[position],
                ) from None
        self._check_repeats(values, {index: shapes[position] for index, position in places.items()})
        return tuple(values)

    def _check_repeats(self, values: Sequence[int], shapes: Mapping[int, Shape | None]) -> None:
        for index, axis, position in self._repeats:
            shape = shapes[index]
            if shape is not None and shape[axis] != values[position]:
                raise InputError(
                    f"dimension {axis} must equal '{self._names[position]}' of another input",
                    where=f"input '{self._input_names[index]}'",
                    expected=values[position],
                    got=shape[axis],
                )

    def has_empty(self, values: Sequence[int]) -> bool:
        """Whether a dimension of an input is 0, for which sizes were not worked out: steps may give others then."""
        return 0 in values and any(
            value == 0 and symbol.source == "dim" for symbol, value in zip(self._symbols, values, strict=True)
        )

    def evaluate(self, values: Sequence[int], shapes: Sequence[Shape | None]) -> list[Shape | None]:
        """The shape of every value by number, where it is known before the run."""
        is_empty = self.has_empty(values)
        evaluated = [_checked_shape([dim(values) for dim in dims], is_empty=is_empty) for dims in self._shapes]
        found: list[Shape | None] = [None] * len(self._program.values)
        for index, number in self._shape_of.items():
            found[index] = evaluated[number]
        for index, shape in zip(self._program.inputs, shapes, strict=True):
            found[index] = shape
        return found

    def evaluate_dim(self, dim: Expr, values: Sequence[int]) -> int:
        """The value of a dimension over symbols that inputs decide."""
        return compile_expr(dim, self._names)(values)


def _read(symbol: SymbolRecord, shape: Shape | None, array: Any) -> int:
    if symbol.source == "dim":
        return 0 if shape is None else shape[symbol.index]
    return int(array.reshape(-1)[symbol.index])


def _checked_shape(sizes: Sequence[int], *, is_empty: bool) -> Shape:
    shape = tuple(sizes)
    if min(shape, default=0) < 0:
        if not is_empty:
            raise InputError("these input shapes give a tensor a negative dimension", got=shape)
        shape = tuple(max(size, 0) for size in shape)
    if math.prod(filter(None, shape)) > _MAX_ELEMENTS:
        raise ResourceError("these input shapes give a tensor more elements than memory can hold", got=shape)
    return shape


def _symbols_in_shapes(program: ProgramRecord, told: Sequence[Dim]) -> frozenset[str]:
    """What shapes that are known before the run depend on; contents of inputs that are not here need not be read."""
    shaped = [value.dims or () for value in program.values if value.kind in ("planned", "output")]
    dims = {dim for known in (*shaped, told) for dim in known if dim is not None}
    return frozenset[str]().union(*map(symbols_of, dims))
