"""Dimension expressions: what a plugin computes its output shapes with, and what a plan stores.

An expression is a constant, a symbol (a dimension or a value that is known at run time), one of nine operations, or a
size tensor. Expressions are immutable, outlive the call that made them and mix freely between builders. ``evaluate``
is for build time; ``compile_exprs`` makes the closures that the runtime calls when shapes change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, SupportsIndex, TypeAlias, Union

from dovetail._contract_enum import ContractEnum
from dovetail.errors import UsageError

__all__ = [
    "Dim",
    "DimensionOperation",
    "DimsExprs",
    "Expr",
    "IDimensionExpr",
    "IExprBuilder",
    "SizeTensor",
    "compile_expr",
    "constant_of",
    "decode_expr",
    "dims_from_sizes",
    "encode_expr",
    "evaluate",
    "interval",
    "sizes_from_dims",
    "sizes_or_unknown",
    "substitute",
    "symbols_of",
]

_INT64_MIN: Final = -(2**63)


class DimensionOperation(ContractEnum):
    """The nine operations of the contract; EQUAL and LESS give 1 or 0."""

    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    SUB = 4
    EQUAL = 5
    LESS = 6
    FLOOR_DIV = 7
    CEIL_DIV = 8


def _floor_div(a: int, b: int) -> int:
    if b == 0:
        raise UsageError("a dimension expression divides by zero", fix="check the shapes that were passed")
    return a // b


_APPLY: Final[dict[DimensionOperation, Callable[[int, int], int]]] = {
    DimensionOperation.SUM: lambda a, b: a + b,
    DimensionOperation.PROD: lambda a, b: a * b,
    DimensionOperation.MAX: max,
    DimensionOperation.MIN: min,
    DimensionOperation.SUB: lambda a, b: a - b,
    DimensionOperation.EQUAL: lambda a, b: int(a == b),
    DimensionOperation.LESS: lambda a, b: int(a < b),
    DimensionOperation.FLOOR_DIV: _floor_div,
    DimensionOperation.CEIL_DIV: lambda a, b: -_floor_div(-a, b),
}


class IDimensionExpr:
    """One dimension: constant, symbol, operation or size tensor. Made by an ``IExprBuilder``, never by hand."""

    __slots__ = ()

    def is_constant(self) -> bool:
        """Whether the value is known now."""
        return False

    def get_constant_value(self) -> int:
        """The value, or the smallest 64-bit integer when it is not known."""
        return _INT64_MIN

    def is_size_tensor(self) -> bool:
        """Whether it stands for a size that the plugin writes while it runs."""
        return False


class Constant(IDimensionExpr):
    """A known integer."""

    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = int(value)

    def is_constant(self) -> bool:
        return True

    def get_constant_value(self) -> int:
        return self.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and other.value == self.value

    def __hash__(self) -> int:
        return hash(("const", self.value))

    def __repr__(self) -> str:
        return str(self.value)


class Symbol(IDimensionExpr):
    """A dimension or value that is known at run time, by name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Symbol) and other.name == self.name

    def __hash__(self) -> int:
        return hash(("symbol", self.name))

    def __repr__(self) -> str:
        return self.name


class Operation(IDimensionExpr):
    """Two expressions joined by one of the nine operations."""

    __slots__ = ("first", "operation", "second")

    def __init__(self, operation: DimensionOperation, first: Expr, second: Expr) -> None:
        self.operation, self.first, self.second = operation, first, second

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Operation):
            return False
        return (self.operation, self.first, self.second) == (other.operation, other.first, other.second)

    def __hash__(self) -> int:
        return hash((self.operation, self.first, self.second))

    def __repr__(self) -> str:
        return f"{self.operation.name.lower()}({self.first}, {self.second})"


class SizeTensor(IDimensionExpr):
    """The value of a 0-D output that the plugin writes: tuned at ``opt``, bounded by ``upper``."""

    __slots__ = ("opt", "output_index", "upper")

    def __init__(self, output_index: int, opt: Expr, upper: Expr) -> None:
        self.output_index, self.opt, self.upper = output_index, opt, upper

    def is_size_tensor(self) -> bool:
        """Always."""
        return True

    def __repr__(self) -> str:
        return f"size_tensor(output {self.output_index}, opt={self.opt}, upper={self.upper})"


Expr = Union[Constant, Symbol, Operation, SizeTensor]  # noqa: UP007 - used at run time in annotations of 3.11

if TYPE_CHECKING:
    Dim: TypeAlias = Expr | None
else:
    Dim = IDimensionExpr | None  # records are read by class, and a reader takes one class, not a union of them
"""One dimension of a tensor, everywhere inside: an expression, or None where nothing is known before the run."""


class IExprBuilder:
    """What ``get_output_shapes`` builds its results with.

    >>> b = IExprBuilder(); n = Symbol("n")
    >>> b.operation(DimensionOperation.CEIL_DIV, n, b.constant(4))
    ceil_div(n, 4)
    """

    __slots__ = ()

    def constant(self, value: int) -> Expr:
        """A known integer as an expression."""
        return Constant(value)

    def operation(self, op: DimensionOperation, first: Expr, second: Expr) -> Expr | None:
        """Join two expressions; None for an operation that does not exist, as the contract says."""
        try:
            operation = DimensionOperation(op)
        except ValueError:
            return None
        _require_expr(first, "first")
        _require_expr(second, "second")
        if first.is_size_tensor() or second.is_size_tensor():
            raise UsageError(
                "a size tensor cannot be part of an operation",
                fix="declare the size tensor with the final value and use it as a dimension alone",
            )
        return _simplify(operation, first, second)

    def declare_size_tensor(self, output_index: int, opt: Expr, upper: Expr) -> Expr:
        """A dimension that output ``output_index`` holds after the run; memory is sized for ``upper``."""
        for name, bound in (("opt", opt), ("upper", upper)):
            _require_expr(bound, name)
            if bound.is_size_tensor():
                raise UsageError(f"{name} of a size tensor depends on a size tensor", fix="use input dims or constants")
        return SizeTensor(int(output_index), opt, upper)


def _require_expr(value: object, name: str) -> None:
    if not isinstance(value, IDimensionExpr):
        raise UsageError(
            f"argument '{name}' is not a dimension expression",
            got=type(value).__name__,
            fix="wrap a plain integer with exprBuilder.constant(...)",
        )


def _simplify(operation: DimensionOperation, first: Expr, second: Expr) -> Expr:
    if isinstance(first, Constant) and isinstance(second, Constant):
        return Constant(_APPLY[operation](first.value, second.value))
    if second == Constant(0) and operation in (DimensionOperation.SUM, DimensionOperation.SUB):
        return first
    if first == Constant(0) and operation is DimensionOperation.SUM:
        return second
    is_product = operation is DimensionOperation.PROD
    if second == Constant(1) and (
        is_product or operation in (DimensionOperation.FLOOR_DIV, DimensionOperation.CEIL_DIV)
    ):
        return first
    if first == Constant(1) and is_product:
        return second
    if first == second and operation in (DimensionOperation.MAX, DimensionOperation.MIN):
        return first
    return Operation(operation, first, second)


class DimsExprs:
    """The dimensions of one tensor as expressions: a list that starts empty, with n slots, or as a copy.

    >>> d = DimsExprs(2); d[0] = Constant(3); len(d), d[0]
    (2, 3)
    """

    __slots__ = ("_exprs",)

    def __init__(self, source: SupportsIndex | Iterable[Expr] | DimsExprs = ()) -> None:
        if isinstance(source, SupportsIndex):
            self._exprs: list[Any] = [Constant(0) for _ in range(source.__index__())]
        else:
            self._exprs = list(source)
        if len(self._exprs) > 8:
            raise UsageError("too many dimensions", expected="at most 8", got=len(self._exprs))

    def __len__(self) -> int:
        return len(self._exprs)

    def __getitem__(self, index: Any) -> Any:
        return self._exprs[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._exprs[index] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(self._exprs)

    def __repr__(self) -> str:
        return f"DimsExprs({self._exprs})"


def constant_of(dim: Dim) -> int | None:
    """The size that a dimension always has; None where the run tells it."""
    return dim.value if isinstance(dim, Constant) else None


def sizes_from_dims(dims: Sequence[Dim]) -> tuple[int | None, ...]:
    """The sizes that are fixed, None for the others.

    >>> sizes_from_dims((Symbol("n"), Constant(3)))
    (None, 3)
    """
    return tuple([dim.value if isinstance(dim, Constant) else None for dim in dims])


def dims_from_sizes(sizes: Iterable[int | None]) -> tuple[Dim, ...]:
    """Dimensions of these sizes, unknown where None stands."""
    return tuple([None if size is None else Constant(size) for size in sizes])


def sizes_or_unknown(sizes: Iterable[int | None]) -> tuple[int, ...]:
    """Sizes as the contract for plugins and callers have them: -1 for what is not known.

    >>> sizes_or_unknown((None, 3))
    (-1, 3)
    """
    return tuple([-1 if size is None else size for size in sizes])


def symbols_of(expr: Expr) -> frozenset[str]:
    """The names of all symbols that an expression depends on."""
    if isinstance(expr, Symbol):
        return frozenset((expr.name,))
    if isinstance(expr, Operation):
        return symbols_of(expr.first) | symbols_of(expr.second)
    if isinstance(expr, SizeTensor):
        return symbols_of(expr.opt) | symbols_of(expr.upper)
    return frozenset()


def evaluate(expr: Expr, values: Mapping[str, int]) -> int:
    """The value of an expression when its symbols have these values.

    >>> evaluate(Operation(DimensionOperation.CEIL_DIV, Symbol("n"), Constant(4)), {"n": 9})
    3
    """
    return compile_expr(expr, list(values))(list(values.values()))


def interval(expr: Expr, ranges: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    """The smallest and largest value when each symbol is anywhere in its range; may be wider than what occurs.

    >>> interval(Operation(DimensionOperation.SUB, Symbol("n"), Symbol("k")), {"n": (4, 8), "k": (0, 3)})
    (1, 8)
    """
    if isinstance(expr, Constant):
        return expr.value, expr.value
    if isinstance(expr, Symbol):
        return ranges[expr.name]
    if isinstance(expr, SizeTensor):
        return 0, interval(expr.upper, ranges)[1]
    first, second = interval(expr.first, ranges), interval(expr.second, ranges)
    apply = _APPLY[expr.operation]
    if expr.operation is DimensionOperation.EQUAL or expr.operation is DimensionOperation.LESS:
        return 0, 1
    # A divisor range that spans zero has no finite bound; one that touches it is cut at one, as runs refuse zero.
    if expr.operation in (DimensionOperation.FLOOR_DIV, DimensionOperation.CEIL_DIV):
        second = (max(second[0], 1), max(second[1], 1))
    corners = [apply(a, b) for a in first for b in second]
    return min(corners), max(corners)


def substitute(expr: Expr, replacements: Mapping[str, Expr]) -> Expr:
    """The expression with symbols replaced; a symbol that is not named stays."""
    if isinstance(expr, Symbol):
        return replacements.get(expr.name, expr)
    if isinstance(expr, Operation):
        return _simplify(expr.operation, substitute(expr.first, replacements), substitute(expr.second, replacements))
    if isinstance(expr, SizeTensor):
        return SizeTensor(expr.output_index, substitute(expr.opt, replacements), substitute(expr.upper, replacements))
    return expr


def compile_expr(expr: Expr, symbols: Sequence[str]) -> Callable[[Sequence[int]], int]:
    """Turn an expression into a function of the symbols' values, given in the order of ``symbols``."""
    if isinstance(expr, Constant):
        value = expr.value
        return lambda _: value
    if isinstance(expr, Symbol):
        return _compile_symbol(expr, symbols)
    if isinstance(expr, SizeTensor):
        raise UsageError("a size tensor has no value before its plugin ran")
    apply = _APPLY[expr.operation]
    first, second = compile_expr(expr.first, symbols), compile_expr(expr.second, symbols)
    return lambda values: apply(first(values), second(values))


def _compile_symbol(expr: Symbol, symbols: Sequence[str]) -> Callable[[Sequence[int]], int]:
    try:
        index = list(symbols).index(expr.name)
    except ValueError:
        raise UsageError(f"symbol '{expr.name}' has no value", expected=", ".join(symbols) or "no symbols") from None
    return lambda values: values[index]


def encode_expr(expr: Expr) -> int | str | list[Any]:
    """The form a plan stores: an integer, a symbol's name, or ``[operation, first, second]``.

    >>> encode_expr(Operation(DimensionOperation.SUM, Symbol("n"), Constant(1)))
    ['sum', 'n', 1]
    """
    if isinstance(expr, Constant):
        return expr.value
    if isinstance(expr, Symbol):
        return expr.name
    if isinstance(expr, Operation):
        return [expr.operation.name.lower(), encode_expr(expr.first), encode_expr(expr.second)]
    raise UsageError("a size tensor is stored as a symbol of its plan, never as itself")


def decode_expr(stored: object, *, depth: int = 0) -> Expr:
    """Read back what ``encode_expr`` wrote; anything else is refused."""
    if isinstance(stored, bool) or depth > 200:
        raise UsageError("a stored dimension expression is malformed", got=repr(stored)[:80])
    if isinstance(stored, int):
        return Constant(stored)
    if isinstance(stored, str):
        return Symbol(stored)
    if isinstance(stored, list) and len(stored) == 3 and isinstance(stored[0], str):
        operation = DimensionOperation.__members__.get(stored[0].upper())
        if operation is not None:
            first, second = (decode_expr(part, depth=depth + 1) for part in stored[1:])
            return Operation(operation, first, second)
    raise UsageError("a stored dimension expression is malformed", got=repr(stored)[:80])
