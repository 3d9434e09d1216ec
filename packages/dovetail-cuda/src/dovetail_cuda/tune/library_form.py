"""What of a product's followers cuBLASLt computes itself: act(alpha * product + residual + bias), stored row by row.

What it does not is left to a kernel behind it, over what it has stored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from dovetail_cuda.graph.regions import ElementRegion, ProductRegion, Stored
from dovetail_cuda.lower.expr import (
    BATCH,
    COLUMN,
    ROW,
    Accumulator,
    Apply,
    Expr,
    Literal,
    Load,
    load,
    rewrite,
    walk,
)
from dovetail_cuda.lower.index import Index, Var, replace_variables
from dovetail_cuda.lower.pointwise import GELU_TANH, RELU

__all__ = ["LibraryForm", "find_line", "match_library", "match_sum", "split_follower"]

_SUM: Final = "{0} + {1}"
_TIMES: Final = "{0} * {1}"
_ACTIVATIONS: Final = {RELU: "relu", GELU_TANH: "gelu_tanh"}


@dataclass(frozen=True, kw_only=True)
class LibraryForm:
    """What the library is asked to do."""

    line: int
    """Elements from one row of the result to the next."""
    stride: int
    """Elements from one matrix of the result to the next."""
    alpha: float = 1.0
    bias: str | None = None
    """The buffer of one row that is added to all."""
    residual: str | None = None
    """The buffer of a matrix that lies as the result does."""
    activation: str = ""


def match_library(region: ProductRegion, stored: Stored) -> LibraryForm | None:
    """The form of what is stored; None where the library has none."""
    placed = _find_strides(region, stored.place)
    if placed is None or stored.dtype != region.dtype:
        return None
    line, stride = placed
    value, activation = stored.value, ""
    if isinstance(value, Apply) and value.text in _ACTIVATIONS:
        activation, value = _ACTIVATIONS[value.text], value.args[0]
    form = LibraryForm(line=line, stride=stride, activation=activation)
    return match_sum(form, value, region.dtype, region.n, stored.place)


def _find_strides(region: ProductRegion, place: Index) -> tuple[int, int] | None:
    """The distance of rows and of matrices in the result, where its columns lie together."""
    factors = {atom.name: factor for atom, factor in place.terms if isinstance(atom, Var)}
    line, stride = find_line(place, region.n), factors.get(BATCH, 0)
    return None if line is None or (region.batch > 1 and stride <= 0) else (line, stride)


def find_line(place: Index, columns: int) -> int | None:
    """The distance of rows in a result, where its columns lie together; None where they do not."""
    factors = {atom.name: factor for atom, factor in place.terms if isinstance(atom, Var)}
    if len(factors) < len(place.terms) or place.constant or factors.get(COLUMN, 1) != 1:
        return None
    line = factors.get(ROW, columns)
    return line if line >= columns else None


def match_sum(form: LibraryForm, value: Expr, dtype: str, columns: int, place: Index) -> LibraryForm | None:
    """A form with what is added to the accumulator; None where the value is no such sum."""
    terms = _list_terms(value)
    if sum(_contains_accumulator(term) for term in terms) != 1:
        return None
    made: LibraryForm | None = form
    for term in terms:
        made = None if made is None else _add_term(made, term, dtype, columns, place)
    return made


def _list_terms(value: Expr) -> list[Expr]:
    if isinstance(value, Apply) and value.text == _SUM:
        return [term for arg in value.args for term in _list_terms(arg)]
    return [value]


def _add_term(form: LibraryForm, term: Expr, kind: str, columns: int, place: Index) -> LibraryForm | None:
    match term:
        case Accumulator():
            return form
        case Apply(text=text, args=(Accumulator(), Literal() as factor)) if text == _TIMES:
            return replace(form, alpha=float(factor.value))
        case Load(guard=None, dtype=dtype) if dtype == kind:
            if term.index == Index.variable(COLUMN, columns) and form.bias is None:
                return replace(form, bias=term.buffer)
            is_same = dict(term.index.terms) == dict(place.terms) and term.index.constant == place.constant
            return replace(form, residual=term.buffer) if is_same and form.residual is None else None
        case _:
            return None


def _contains_accumulator(expr: Expr) -> bool:
    return any(isinstance(each, Accumulator) for each in walk(expr))


def split_follower(region: ProductRegion, buffer: str) -> tuple[LibraryForm, ElementRegion]:
    """As much as the library computes, stored row by row to a buffer, and the kernel that makes the rest of it."""
    natural = _flat_place(region)
    for part in reversed(list(walk(region.stored.value))):
        first = Stored(buffer=buffer, dtype=region.dtype, value=part, place=natural)
        form = match_library(region, first) if _contains_accumulator(part) else None
        if form is not None:
            rest = _read_part(region, part, buffer)
            if not _contains_accumulator(rest.value):
                return form, _flatten_region(region, rest)
    raise AssertionError("the accumulator itself is what the library has")


def _flat_place(region: ProductRegion) -> Index:
    m, n = region.m, region.n
    row, column, number = Index.variable(ROW, m), Index.variable(COLUMN, n), Index.variable(BATCH, region.batch)
    return number * (m * n) + row * n + column


def _read_part(region: ProductRegion, part: Expr, buffer: str) -> Stored:
    """What is stored, with a part of it read from a buffer."""
    read = load(buffer, _flat_place(region), None, part.dtype)
    value = rewrite(region.stored.value, lambda each: read if each is part else None)
    return replace(region.stored, value=value)


def _flatten_region(region: ProductRegion, stored: Stored) -> ElementRegion:
    """A region of one element a lane, of what is stored at a row, a column and a number of the batch."""
    m, n, count = region.m, region.n, region.batch * region.m * region.n
    flat = Index.variable(ROW, count)
    places = {ROW: flat // n % m, COLUMN: flat % n, BATCH: flat // (m * n)}

    def move(index: Index) -> Index:
        return replace_variables(index, places)

    value = rewrite(stored.value, lambda each: None, move)
    changed = replace(stored, value=value, place=move(stored.place))
    return ElementRegion(stored=(changed,), count=count, layers=region.layers, ops=region.ops)
