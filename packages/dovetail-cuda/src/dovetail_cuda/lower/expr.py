"""Expressions for one element of a result: what is loaded, what is computed of it, and what is summed up over a row.

Equal expressions are one object, so that a kernel computes each once. Elements of half precision are single precision
while they are computed with, and rounded where they are stored or cast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from dovetail_cuda.lower.index import Gathered, Index, Quotient, Remainder, Var, map_atoms
from dovetail_cuda.lower.sizes import is_below, is_fixed
from dovetail_cuda.lower.types import is_float

__all__ = [
    "BATCH",
    "COLUMN",
    "ROW",
    "Accumulator",
    "Apply",
    "Convert",
    "Expr",
    "Literal",
    "Load",
    "Position",
    "Reduced",
    "Within",
    "accumulator",
    "apply",
    "both",
    "children",
    "convert",
    "list_gathered",
    "list_loads",
    "literal",
    "load",
    "mentions",
    "position",
    "reduced",
    "rewrite",
    "select",
    "walk",
    "within",
]

ROW: Final = "i"
"""The variable of the row, or of the element where there are no rows."""
COLUMN: Final = "j"
"""The loop variable over what is reduced, or over the columns of a tile; every other one is the same for a row."""
BATCH: Final = "b"
"""The variable of the matrix, where a kernel makes a batch of them."""


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Load:
    """An element of a buffer; where the guard does not hold it is not read, and is zero."""

    buffer: str
    index: Index
    guard: Expr | None
    dtype: str


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Literal:
    """A number."""

    value: int | float | bool
    dtype: str


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Position:
    """The value of an index."""

    index: Index
    dtype: str


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Within:
    """Whether an index is in a range, its end excluded; None for an end that needs no look."""

    index: Index
    low: int | None
    high: int | None
    dtype: str = "bool"


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Apply:
    """Triton's text for an operation, with places for its arguments."""

    text: str
    args: tuple[Expr, ...]
    dtype: str


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Convert:
    """A change of type, with the rounding that it means."""

    arg: Expr
    dtype: str


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Reduced:
    """What becomes of an expression over all columns of a row; ``kind`` is a key of ``compile.source.REDUCTIONS``."""

    kind: str
    arg: Expr
    dtype: str


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Accumulator:
    """What the kernel that an expression belongs to has computed for this element, in the type of its arithmetic."""

    dtype: str


Expr = Load | Literal | Position | Within | Apply | Convert | Reduced | Accumulator
E = TypeVar("E", Load, Literal, Position, Within, Apply, Convert, Reduced, Accumulator)
_known: WeakValueDictionary[tuple[Any, ...], Any] = WeakValueDictionary()


def _intern(cls: type[E], *fields: Any) -> E:
    # Numbers by their text: minus zero is equal to zero, and another number.
    key = (cls, *((type(field), repr(field) if isinstance(field, float) else field) for field in fields))
    made: E | None = _known.get(key)
    if made is None:
        made = _known[key] = cls(*fields)
    return made


def load(buffer: str, index: Index, guard: Expr | None, dtype: str) -> Expr:
    """An element of a buffer."""
    return _intern(Load, buffer, index, guard, dtype)


def literal(value: Any, dtype: str) -> Expr:
    """A number of a type."""
    if not is_fixed(value):
        return position(Index((), value), dtype)
    plain = bool(value) if dtype == "bool" else float(value) if is_float(dtype) else int(value)
    return _intern(Literal, plain, dtype)


def position(index: Index, dtype: str = "int64") -> Expr:
    """An index as a value."""
    return _intern(Position, index, dtype)


def apply(text: str, *args: Expr, dtype: str) -> Expr:
    """An operation on expressions."""
    return _intern(Apply, text, args, dtype)


def convert(arg: Expr, dtype: str) -> Expr:
    """An expression in another type."""
    return arg if arg.dtype == dtype else _intern(Convert, arg, dtype)


def reduced(kind: str, arg: Expr, dtype: str) -> Expr:
    """An expression over a whole row."""
    return _intern(Reduced, kind, arg, dtype)


def accumulator(dtype: str) -> Expr:
    """What a kernel has computed for an element, as a number of a type."""
    return _intern(Accumulator, dtype)


def within(index: Index, low: int, high: int) -> Expr | None:
    """Whether an index is in a range; None where it always is."""
    first, last = index.bounds
    below, above = (None if is_below(low - 1, first) else low), (None if is_below(last, high) else high)
    return None if below is above is None else _intern(Within, index, below, above, "bool")


def both(first: Expr | None, second: Expr | None) -> Expr | None:
    """Two conditions at once; None holds always."""
    if first is None or second is None:
        return second if first is None else first
    return first if first is second else apply("{0} & {1}", first, second, dtype="bool")


def select(condition: Expr | None, first: Expr, second: Expr) -> Expr:
    """The one or the other."""
    if condition is None:
        return first
    return apply("tl.where({0}, {1}, {2})", condition, first, second, dtype=first.dtype)


def children(expr: Expr) -> Iterator[Expr]:
    """What an expression is made of, indices that are loaded included."""
    match expr:
        case Apply():
            yield from expr.args
        case Convert() | Reduced():
            yield expr.arg
        case Load():
            yield from list_gathered(expr.index)
            if expr.guard is not None:
                yield expr.guard
        case Position() | Within():
            yield from list_gathered(expr.index)
        case _:
            return


def list_gathered(index: Index) -> Iterator[Expr]:
    """The elements of tensors that an index is made of."""
    for atom, _ in index.terms:
        if isinstance(atom, Gathered):
            yield atom.value
        elif isinstance(atom, Quotient | Remainder):
            yield from list_gathered(atom.of)


def walk(expr: Expr) -> Iterator[Expr]:
    """Every expression in it once, what is needed first coming first."""
    seen: set[Expr] = set()
    stack: list[tuple[Expr, bool]] = [(expr, False)]
    while stack:
        each, is_done = stack.pop()
        if is_done:
            yield each
        elif each not in seen:
            seen.add(each)
            stack.append((each, True))
            stack.extend((child, False) for child in children(each))


def rewrite(expr: Expr, change: Callable[[Expr], Expr | None], move: Callable[[Index], Index] = lambda i: i) -> Expr:
    """An expression with parts of it replaced.

    Args:
        expr: The expression.
        change: Gives what an expression becomes, or None where only its parts may change.
        move: Gives what an index becomes that loads nothing itself.
    """
    made: dict[Expr, Expr] = {}

    def shift(index: Index) -> Index:
        return map_atoms(move(index), lambda each: made.get(each, each))

    for each in walk(expr):
        made[each] = change(each) or _rebuild(each, made, shift)
    return made[expr]


def _rebuild(expr: Expr, made: dict[Expr, Expr], shift: Callable[[Index], Index]) -> Expr:
    """An expression over parts that are made already."""
    match expr:
        case Apply():
            return apply(expr.text, *(made[arg] for arg in expr.args), dtype=expr.dtype)
        case Convert():
            return _intern(Convert, made[expr.arg], expr.dtype)
        case Reduced():
            return reduced(expr.kind, made[expr.arg], expr.dtype)
        case Load():
            guard = None if expr.guard is None else made[expr.guard]
            return load(expr.buffer, shift(expr.index), guard, expr.dtype)
        case Position():
            return position(shift(expr.index), expr.dtype)
        case Within():
            return _intern(Within, shift(expr.index), expr.low, expr.high, expr.dtype)
        case _:
            return expr


def list_loads(expr: Expr) -> list[Load]:
    """Everything that is read."""
    return [each for each in walk(expr) if isinstance(each, Load)]


def mentions(index: Index, name: str) -> bool:
    """Whether an index changes with a loop variable."""
    for atom, _ in index.terms:
        if isinstance(atom, Var) and atom.name == name:
            return True
        if isinstance(atom, Quotient | Remainder) and mentions(atom.of, name):
            return True
    return False
