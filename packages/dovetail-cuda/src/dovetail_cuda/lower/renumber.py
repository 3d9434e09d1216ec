"""Expressions over another loop variable: rows counted in another order, or a buffer's elements that are at hand."""

from __future__ import annotations

from collections.abc import Callable

from dovetail_cuda.lower.expr import (
    Apply,
    Convert,
    Expr,
    Load,
    Position,
    Reduced,
    Within,
    apply,
    convert,
    literal,
    load,
    position,
    reduced,
    walk,
    within,
)
from dovetail_cuda.lower.index import Gathered, Index, Quotient, Remainder, Var

__all__ = ["renumber", "replace_loads"]


def renumber(value: Expr, name: str, by: Index) -> Expr:
    """An expression with something else in the place of a loop variable."""
    return _rebuild(value, lambda index, made: _put(index, name, by, made), lambda each: None)


def replace_loads(value: Expr, buffer: str, by: Expr) -> Expr:
    """An expression with something at hand in the place of what is loaded from a buffer."""

    def replace(each: Expr) -> Expr | None:
        return by if isinstance(each, Load) and each.buffer == buffer else None

    return _rebuild(value, _keep, replace)


Made = dict[Expr, Expr]


def _rebuild(value: Expr, change: Callable[[Index, Made], Index], replace: Callable[[Expr], Expr | None]) -> Expr:
    made: Made = {}
    for each in walk(value):
        made[each] = replace(each) or _make(each, change, made)
    return made[value]


def _make(each: Expr, change: Callable[[Index, Made], Index], made: Made) -> Expr:
    match each:
        case Load():
            guard = None if each.guard is None else made[each.guard]
            return load(each.buffer, change(each.index, made), guard, each.dtype)
        case Position():
            return position(change(each.index, made), each.dtype)
        case Within():
            return _make_within(each, change(each.index, made))
        case Apply():
            return apply(each.text, *(made[arg] for arg in each.args), dtype=each.dtype)
        case Convert():
            return convert(made[each.arg], each.dtype)
        case Reduced():
            return reduced(each.kind, made[each.arg], each.dtype)
        case _:
            return each


def _make_within(each: Within, index: Index) -> Expr:
    low, high = index.bounds
    least, end = (low if each.low is None else each.low), (high + 1 if each.high is None else each.high)
    return within(index, least, end) or literal(value=True, dtype="bool")


def _keep(index: Index, made: Made) -> Index:
    return _put(index, "", Index(), made)


def _put(index: Index, name: str, by: Index, made: Made) -> Index:
    """An index with another in the place of a variable, in its simple form again."""
    total = Index((), index.constant)
    for atom, factor in index.terms:
        match atom:
            case Var():
                part = by if atom.name == name else Index(((atom, 1),))
            case Gathered():
                part = Index.gathered(made[atom.value], atom.size)
            case Quotient():
                part = _put(atom.of, name, by, made) // atom.by
            case Remainder():
                part = _put(atom.of, name, by, made) % atom.by
        total = total + part * factor
    return total
