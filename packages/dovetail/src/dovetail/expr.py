"""Dimension expressions: what a plugin computes its output shapes with, and what a plan stores.

An expression is a constant, a symbol (a dimension or a value that is known at run time), one of nine operations, or a
size tensor. Expressions are immutable, outlive the call that made them and mix freely between builders. ``evaluate``
is for build time; ``compile_exprs`` makes the closures that the runtime calls when shapes change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, SupportsIndex, TypeAlias, Union

from dovetail.contract_enum import ContractEnum
from dovetail.errors import UsageError

__all__ = [
    "MAX_DIM",
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
    "fits_plan",
    "interval",
    "join_exprs",
    "list_divisors",
    "sizes_from_dims",
    "sizes_or_unknown",
    "substitute",
    "symbols_of",
]

_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
MAX_DIM: Final = 2**40
"""Sizes of dimensions are below this, which is more elements than a machine can store."""
_MAX_DEPTH: Final = 200
"""Nested operations in an expression: `decode_expr` rejects deeper ones, which only a malformed plan contains."""
_MAX_NODES: Final = 1 << 16
"""Constants, symbols and operations in an expression, each counted as often as it occurs. A plan stores a tree, so an
expression that reuses its own parts (``d = d + d``) grows exponentially in a plan."""


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
    depth: Final = 0
    num_nodes: Final = 1

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
    depth: Final = 0
    num_nodes: Final = 1

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

    __slots__ = ("depth", "first", "num_nodes", "operation", "second")

    def __init__(self, operation: DimensionOperation, first: Expr, second: Expr) -> None:
        self.operation, self.first, self.second = operation, first, second
        self.depth: int = 1 + max(first.depth, second.depth)
        """Number of nested operations."""
        self.num_nodes: int = 1 + first.num_nodes + second.num_nodes

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
    depth: Final = 0
    num_nodes: Final = 1

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
        """Return an integer as an expression.

        Raises:
            UsageError: If the value is not an integer, or does not fit 64 bits.
        """
        try:
            constant = Constant(value.__index__())
        except AttributeError:
            raise UsageError(
                "a constant dimension is not an integer", got=repr(value)[:60], fix="use // for division"
            ) from None
        if not fits_plan(constant):
            raise _make_overflow_error(constant.value)
        return constant

    def operation(self, op: DimensionOperation, first: Expr, second: Expr) -> Expr | None:
        """Join two expressions.

        A deep chain of sums, products, maxima or minima is rebalanced, so that a plan can store it.

        Args:
            op: One of the nine operations.
            first: Left operand.
            second: Right operand.

        Returns:
            The expression, or None for an operation that does not exist, as the contract requires.

        Raises:
            UsageError: If an operand is not an expression or is a size tensor, if constants are divided by zero or
                overflow 64 bits, or if the expression is too large for a plan.
        """
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
        joined = join_exprs(operation, first, second)
        if joined is None:
            raise _make_size_error(first, second)
        return joined

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


def join_exprs(operation: DimensionOperation, first: Expr, second: Expr) -> Expr | None:
    """Join two expressions that contain no size tensor.

    Args:
        operation: One of the nine operations.
        first: Left operand.
        second: Right operand.

    Returns:
        The simplified expression, or None if it does not fit into a plan (see `fits_plan`).

    Raises:
        UsageError: If two constants are divided by zero.
    """
    joined = _simplify(operation, first, second)
    if joined.depth > _MAX_DEPTH and joined.num_nodes <= _MAX_NODES:
        joined = _rebalance(joined)
    return joined if fits_plan(joined) else None


def fits_plan(expr: Expr) -> bool:
    """True if a plan can store this expression: not too deep, not too large, or a constant of 64 bits.

    Constants inside an operation are not checked again; `join_exprs` and `IExprBuilder.constant` make no larger ones.
    """
    if isinstance(expr, Constant):
        return _INT64_MIN <= expr.value <= _INT64_MAX
    return expr.depth <= _MAX_DEPTH and expr.num_nodes <= _MAX_NODES


def _make_overflow_error(value: int) -> UsageError:
    return UsageError(
        "a constant dimension does not fit 64 bits",
        expected=f"{_INT64_MIN} to {_INT64_MAX}",
        got=value if value.bit_length() < 200 else f"an integer of {value.bit_length()} bits",
        fix="check the sizes that were multiplied",
    )


def _make_size_error(first: Expr, second: Expr) -> UsageError:
    if isinstance(first, Constant) and isinstance(second, Constant):
        return UsageError(
            "an operation on constant dimensions overflows 64 bits",
            got=f"{first} and {second}",
            fix="check the sizes that were passed",
        )
    return UsageError(
        "a dimension expression is too large for a plan",
        expected=f"at most {_MAX_NODES} operands and operations, nested at most {_MAX_DEPTH} deep",
        got=f"{1 + first.num_nodes + second.num_nodes}, nested {1 + max(first.depth, second.depth)} deep",
        fix="compute the dimension with fewer operations, or declare a size tensor",
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
    if operation in (DimensionOperation.MAX, DimensionOperation.MIN) and first == second:
        return first
    return Operation(operation, first, second)


# rebalancing


def _rebalance(expr: Expr, max_depth: int = _MAX_DEPTH) -> Expr:
    """Return an equal expression whose chains of associative operations are balanced trees.

    Parts nested deeper than `max_depth` stay unchanged, because the expression is rejected in any case.
    """
    if not isinstance(expr, Operation) or max_depth == 0:
        return expr
    if expr.operation in (DimensionOperation.SUM, DimensionOperation.SUB):
        added, subtracted = _flatten_sum(expr)
        total = _join_balanced(DimensionOperation.SUM, [_rebalance(term, max_depth - 1) for term in added])
        if not subtracted:
            return total
        rest = _join_balanced(DimensionOperation.SUM, [_rebalance(term, max_depth - 1) for term in subtracted])
        return Operation(DimensionOperation.SUB, total, rest)
    if expr.operation in (DimensionOperation.PROD, DimensionOperation.MAX, DimensionOperation.MIN):
        operands = [_rebalance(operand, max_depth - 1) for operand in _flatten(expr)]
        return _join_balanced(expr.operation, operands)
    first, second = _rebalance(expr.first, max_depth - 1), _rebalance(expr.second, max_depth - 1)
    return Operation(expr.operation, first, second)


def _flatten(expr: Operation) -> list[Expr]:
    """Return the operands of a chain of one associative operation, from left to right."""
    operands, pending = list[Expr](), list[Expr]([expr])
    while pending:
        part = pending.pop()
        if isinstance(part, Operation) and part.operation is expr.operation:
            pending += (part.second, part.first)
        else:
            operands.append(part)
    return operands


def _flatten_sum(expr: Operation) -> tuple[list[Expr], list[Expr]]:
    """Return the added and the subtracted terms of a chain of sums and differences."""
    terms: tuple[list[Expr], list[Expr]] = ([], [])
    pending: list[tuple[Expr, int]] = [(expr, 0)]
    while pending:
        part, sign = pending.pop()
        if isinstance(part, Operation) and part.operation in (DimensionOperation.SUM, DimensionOperation.SUB):
            pending += ((part.second, sign ^ (part.operation is DimensionOperation.SUB)), (part.first, sign))
        else:
            terms[sign].append(part)
    return terms


def _join_balanced(operation: DimensionOperation, operands: Sequence[Expr]) -> Expr:
    """Join operands pairwise until one is left: the depth grows with the logarithm of their number."""
    while len(operands) > 1:
        pairs = [operands[index : index + 2] for index in range(0, len(operands), 2)]
        operands = [Operation(operation, *pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return operands[0]


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
    """Return the smallest and the largest value of an expression over ranges of its symbols.

    Args:
        expr: Expression.
        ranges: Inclusive range of each symbol.

    Returns:
        Inclusive bounds. They can be wider than the values that occur, and a division by zero, which runs reject, is
        left out.

    >>> interval(Operation(DimensionOperation.SUB, Symbol("n"), Symbol("k")), {"n": (4, 8), "k": (0, 3)})
    (1, 8)
    """
    if isinstance(expr, Constant):
        return expr.value, expr.value
    if isinstance(expr, Symbol):
        return ranges[expr.name]
    if isinstance(expr, SizeTensor):
        return 0, interval(expr.upper, ranges)[1]
    if expr.operation is DimensionOperation.EQUAL or expr.operation is DimensionOperation.LESS:
        return 0, 1
    first, second = interval(expr.first, ranges), interval(expr.second, ranges)
    apply = _APPLY[expr.operation]
    is_division = expr.operation in (DimensionOperation.FLOOR_DIV, DimensionOperation.CEIL_DIV)
    corners = [apply(a, b) for a in first for b in (list_divisors(*second) if is_division else second)]
    return min(corners), max(corners)


def list_divisors(low: int, high: int) -> list[int]:
    """Return the ends of the negative and of the positive part of a range of divisors.

    On each part a quotient is monotonic, so its bounds are among those for these divisors. A range that is only zero,
    for which every run fails, is cut at one.

    >>> list_divisors(-2, 3), list_divisors(0, 3)
    ([-2, -1, 1, 3], [1, 3])
    """
    negative = [low, min(high, -1)] if low < 0 else []
    positive = [max(low, 1), max(high, 1)] if high > 0 or not negative else []
    return negative + positive


def substitute(expr: Expr, replacements: Mapping[str, Expr]) -> Expr:
    """Replace symbols; those without a replacement stay.

    Raises:
        UsageError: If the result is too large for a plan.
    """
    if isinstance(expr, Symbol):
        return replacements.get(expr.name, expr)
    if isinstance(expr, Operation):
        first, second = substitute(expr.first, replacements), substitute(expr.second, replacements)
        joined = join_exprs(expr.operation, first, second)
        if joined is None:
            raise _make_size_error(first, second)
        return joined
    if isinstance(expr, SizeTensor):
        return SizeTensor(expr.output_index, substitute(expr.opt, replacements), substitute(expr.upper, replacements))
    return expr


def compile_expr(expr: Expr, symbols: Sequence[str]) -> Callable[[Sequence[int]], int]:
    """Turn an expression into a function of the symbols' values, given in the order of ``symbols``.

    The function raises `UsageError` where a value does not fit into 64 bits.
    """
    if isinstance(expr, Constant):
        value = expr.value
        return lambda _: value
    if isinstance(expr, Symbol):
        return _compile_symbol(expr, symbols)
    if isinstance(expr, SizeTensor):
        raise UsageError("a size tensor has no value before its plugin ran")
    apply = _APPLY[expr.operation]
    first, second = compile_expr(expr.first, symbols), compile_expr(expr.second, symbols)

    def compute(values: Sequence[int]) -> int:
        value = apply(first(values), second(values))
        if not _INT64_MIN <= value <= _INT64_MAX:
            raise UsageError(
                "a dimension expression overflows 64 bits",
                got=f"{value} from {expr}"[:200],
                fix="check the shapes that were passed",
            )
        return value

    return compute


def _compile_symbol(expr: Symbol, symbols: Sequence[str]) -> Callable[[Sequence[int]], int]:
    try:
        index = list(symbols).index(expr.name)
    except ValueError:
        raise UsageError(f"symbol '{expr.name}' has no value", expected=", ".join(symbols) or "no symbols") from None
    return lambda values: values[index]


def encode_expr(expr: Expr) -> int | str | list[Any]:
    """Return the form that a plan stores: an integer, a symbol's name, or ``[operation, first, second]``.

    Raises:
        UsageError: If the expression contains a size tensor, is too large for a plan, or has a constant of more than
            64 bits. `decode_expr` reads every form that is written.

    >>> encode_expr(Operation(DimensionOperation.SUM, Symbol("n"), Constant(1)))
    ['sum', 'n', 1]
    """
    is_deep = expr.depth > _MAX_DEPTH and expr.num_nodes <= _MAX_NODES
    stored = _rebalance(expr) if is_deep else expr
    if isinstance(stored, Operation) and not fits_plan(stored):
        raise _make_size_error(stored.first, stored.second)
    return _encode(stored)


def _encode(expr: Expr) -> int | str | list[Any]:
    if isinstance(expr, Constant):
        if not fits_plan(expr):
            raise _make_overflow_error(expr.value)
        return expr.value
    if isinstance(expr, Symbol):
        return expr.name
    if isinstance(expr, Operation):
        return [expr.operation.name.lower(), _encode(expr.first), _encode(expr.second)]
    raise UsageError("a size tensor is stored as a symbol of its plan, never as itself")


def decode_expr(stored: object, *, depth: int = 0) -> Expr:
    """Read the form that `encode_expr` writes.

    Args:
        stored: Value from a plan.
        depth: Number of operations around it.

    Raises:
        UsageError: If the value is anything else.
    """
    if isinstance(stored, bool) or depth > _MAX_DEPTH:
        raise UsageError("a stored dimension expression is malformed", got=repr(stored)[:80])
    if isinstance(stored, int):
        constant = Constant(stored)
        if not fits_plan(constant):
            raise _make_overflow_error(stored)
        return constant
    if isinstance(stored, str):
        return Symbol(stored)
    if isinstance(stored, list) and len(stored) == 3 and isinstance(stored[0], str):
        operation = DimensionOperation.__members__.get(stored[0].upper())
        if operation is not None:
            first, second = (decode_expr(part, depth=depth + 1) for part in stored[1:])
            return Operation(operation, first, second)
    raise UsageError("a stored dimension expression is malformed", got=repr(stored)[:80])
