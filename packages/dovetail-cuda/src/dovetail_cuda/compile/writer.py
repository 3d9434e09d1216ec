"""Expressions as lines of a Triton kernel, each computed once.

Kernels differ in what their lanes are; what a value is made of is written down here for all of them. In a kernel with
rows and columns a value that changes with the row only is a column vector, one that changes with the column only a row
vector, and Triton stretches them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from dovetail_cuda.graph.regions import Stored
from dovetail_cuda.lower.expr import (
    BATCH,
    COLUMN,
    ROW,
    Accumulator,
    Apply,
    Convert,
    Expr,
    Literal,
    Load,
    Position,
    Reduced,
    Within,
    children,
    list_gathered,
    mentions,
    walk,
)
from dovetail_cuda.lower.index import Gathered, Index, Quotient, Remainder, Var
from dovetail_cuda.lower.sizes import greatest, least
from dovetail_cuda.lower.types import compute_type, triton_name

__all__ = ["ACCUMULATOR", "ExpressionWriter", "is_wide", "list_buffers", "register_type"]

ACCUMULATOR: Final = "total"
"""The variable of what a kernel has computed before the expressions."""
_INT32_END: Final = 2**31


class ExpressionWriter:
    """Lines of a kernel.

    Args:
        values: What the kernel computes.
        names: The parameter of each buffer.
        has_columns: Whether its lanes have rows and columns.
        partial: The axes that have lanes without elements, for which ``i_live`` or ``j_live`` tell them.
        uses_int64: Whether some index does not fit 32 bits.
        lanes: The lanes of variables that are not called as they are.
    """

    def __init__(
        self,
        values: Sequence[Expr],
        names: Mapping[str, str],
        *,
        has_columns: bool,
        partial: frozenset[str],
        uses_int64: bool,
        lanes: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.lines: list[str] = []
        self._names = names
        self._lanes = lanes
        self._axes = _find_axes(values)
        self._values: dict[Expr, str] = {}
        self._loaded: dict[Expr, str] = {}
        self._count = 0
        self._indent = "    "
        self._has_columns = has_columns
        self._partial = partial
        self._uses_int64 = uses_int64

    def line(self, text: str) -> None:
        """Add a line."""
        self.lines.append(self._indent + text)

    def _live(self, axes: frozenset[str]) -> list[str]:
        """The lanes along some axes that have elements, where not all have."""
        return [f"{self._lane(axis)}_live" for axis in sorted(axes & self._partial)]

    def _lane(self, axis: str) -> str:
        return self._lanes.get(axis, axis)

    def write(self, expr: Expr) -> str:
        """The variable of a value, which is computed in lines before."""
        return self._value(expr)

    def write_load(self, expr: Load, axes: frozenset[str]) -> str:
        """A load in its own type, over some axes at least."""
        for child in children(expr):
            self._value(child)
        return self._load_text(expr, axes)

    def load_early(self, expr: Load) -> None:
        """Have a load begin here; what is computed of it comes where it is needed, so that nothing waits before."""
        self._loaded[expr] = name = self._new_name()
        self.line(f"{name} = {self.write_load(expr, frozenset())}")

    def store(self, stored: Stored) -> None:
        """Store a result of the kernel."""
        # A dimension of size 1 has no part in the place, and still a lane for each element of a tile.
        axes = frozenset((ROW,) if stored.is_reduced else (ROW, COLUMN)) | self._axes[stored.value]
        for each in list_gathered(stored.place):
            self._value(each)
        value, place = self._value(stored.value), self._render(stored.place)
        spread = [axis for axis in sorted(axes) if not mentions(stored.place, axis) and self._has_axis(axis)]
        place += "".join(f" + 0 * {self._lane(axis)}" for axis in spread)
        mask = self._live(axes)
        condition = f", mask={' & '.join(mask)}" if mask else ""
        cast = f".to(tl.{triton_name(stored.dtype)})"
        self.line(f"tl.store({self._names[stored.buffer]} + {place}, {value}{cast}{condition})")

    def _has_axis(self, axis: str) -> bool:
        return axis == ROW or self._has_columns

    def _value(self, expr: Expr) -> str:
        if expr not in self._values:
            if not isinstance(expr, Reduced):
                for child in children(expr):
                    self._value(child)
            self._values[expr] = self._define(expr)
        return self._values[expr]

    def _define(self, expr: Expr) -> str:
        name = self._new_name()
        self.line(f"{name} = {self._text(expr)}")
        return name

    def _text(self, expr: Expr) -> str:
        match expr:
            case Load():
                widened = ".to(tl.float32)" if compute_type(expr.dtype) != expr.dtype else ""
                return f"{self._loaded.get(expr) or self._load_text(expr)}{widened}"
            case Literal():
                return self._full(_number(expr.value), register_type(expr.dtype))
            case Position():
                if not expr.index.terms:
                    return self._full(str(expr.index.constant), register_type(expr.dtype))
                return f"({self._render(expr.index)}).to({register_type(expr.dtype)})"
            case Within():
                return self._within_text(expr)
            case Apply():
                return expr.text.format(*(self._values[arg] for arg in expr.args))
            case Convert():
                return _convert_text(self._values[expr.arg], expr.arg.dtype, expr.dtype)
            case Reduced():
                return self._reduce(expr)
            case Accumulator():
                return ACCUMULATOR

    def _load_text(self, expr: Load, least: frozenset[str] = frozenset()) -> str:
        index_axes = _index_axes(expr.index, self._axes)
        axes = self._axes[expr] | least
        spread = "".join(f" + 0 * {self._lane(axis)}" for axis in sorted(axes - index_axes))
        place = self._render(expr.index) + spread
        if expr.guard is not None and not axes:
            place += f" + {self._full('0', 'tl.int32')}"  # a mask of lanes is for a pointer of lanes
        mask = self._live(axes) + ([] if expr.guard is None else [self._values[expr.guard]])
        condition = f", mask={' & '.join(mask)}, other=0" if mask else ""
        return f"tl.load({self._names[expr.buffer]} + {place}{condition})"

    def _within_text(self, expr: Within) -> str:
        index = self._render(expr.index)
        if not expr.index.terms:
            return self._full("False", "tl.int1")  # what holds was left out when it was made
        parts = [] if expr.low is None else [f"({index} >= {expr.low})"]
        parts += [] if expr.high is None else [f"({index} < {expr.high})"]
        return " & ".join(parts)

    def _reduce(self, expr: Reduced) -> str:
        raise NotImplementedError

    def _render(self, index: Index) -> str:
        parts = [self._render_term(atom, factor) for atom, factor in index.terms]
        if index.constant or not parts:
            parts.append(str(index.constant))
        return f"({' + '.join(parts)})" if len(parts) > 1 else parts[0]

    def _render_term(self, atom: Var | Gathered | Quotient | Remainder, factor: int) -> str:
        match atom:
            case Var():
                text = self._lane(atom.name)
            case Gathered():
                text = f"{self._values[atom.value]}.to(tl.{'int64' if self._uses_int64 else 'int32'})"
            case Quotient():
                text = f"({self._render(atom.of)} // {atom.by})"
            case Remainder():
                text = f"({self._render(atom.of)} % {atom.by})"
        return text if factor == 1 else f"{text} * {factor}"

    def _full(self, number: str, dtype: str) -> str:
        """A number of a type, with as many dimensions as everything else."""
        return f"tl.full([{'1, 1' if self._has_columns else '1'}], {number}, {dtype})"

    def _new_name(self) -> str:
        self._count += 1
        return f"v{self._count}"


def list_buffers(stored: Sequence[Stored]) -> dict[str, str]:
    """The buffers of a kernel with their types: those it reads, then those it writes."""
    found: dict[str, str] = {}
    for each in stored:
        found.update({part.buffer: part.dtype for part in each.parts if isinstance(part, Load)})
    return {**found, **{each.buffer: each.dtype for each in stored}}


def _find_axes(values: Sequence[Expr]) -> dict[Expr, frozenset[str]]:
    """For each expression the axes it changes along; what is reduced changes with the row at most."""
    found: dict[Expr, frozenset[str]] = {}
    for value in values:
        for expr in walk(value):
            axes = frozenset(axis for child in children(expr) for axis in found[child])
            if isinstance(expr, Load | Position | Within):
                axes |= _index_axes(expr.index, found)
            if isinstance(expr, Accumulator):
                axes = frozenset((ROW, COLUMN))
            found[expr] = frozenset((ROW,)) if isinstance(expr, Reduced) else axes
    return found


def _index_axes(index: Index, found: dict[Expr, frozenset[str]]) -> frozenset[str]:
    """The variables that an index changes with; those of the batch are the same for all lanes."""
    axes = _variables_of(index) - {BATCH}
    for gathered in list_gathered(index):
        axes |= found[gathered]
    return frozenset(axes)


def _variables_of(index: Index) -> set[str]:
    found: set[str] = set()
    for atom, _ in index.terms:
        if isinstance(atom, Var):
            found.add(atom.name)
        elif isinstance(atom, Quotient | Remainder):
            found |= _variables_of(atom.of)
    return found


def is_wide(stored: Sequence[Stored], count: int) -> bool:
    """Whether some index does not fit 32 bits, in a kernel of so many lanes."""
    parts = [part for each in stored for part in each.parts]
    indices = [each.index for each in parts if isinstance(each, Load | Position | Within)]
    bounds = [bound for index in (*indices, *(each.place for each in stored)) for bound in index.bounds]
    ends = [end for bound in (*bounds, count) for end in (-least(bound), greatest(bound))]
    return max(ends) * 2 >= _INT32_END


def register_type(dtype: str) -> str:
    """The type that values of a type have while they are computed with."""
    return f"tl.{triton_name(compute_type(dtype))}"


def _number(value: float) -> str:
    return repr(value) if value == value and abs(value) != float("inf") else f'float("{value}")'


def _convert_text(value: str, source: str, target: str) -> str:
    """A cast as ONNX has it: to bool by comparison, to half precision with its rounding."""
    if target == "bool":
        return f"({value} != 0)"
    register, own = register_type(target), f"tl.{triton_name(target)}"
    if own == register:
        return f"{value}.to({register})"
    if source == target or (source == "bool"):
        return f"{value}.to({register})"
    return f"{value}.to({own}).to({register})"
