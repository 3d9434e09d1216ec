"""Masks of attention that need not be computed: those that hide nothing, and those that hide what comes later."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dovetail_cuda.lower.expr import Accumulator, Apply, Convert, Expr, Literal, Load, apply, convert, walk
from dovetail_cuda.lower.index import Index, Quotient, Remainder, Var

__all__ = ["find_places", "simplify_score"]

_HIDDEN: Final = -1e4
"""What is added to a score so that nothing is left of it: from here on, for no score is as large."""
_WHERE: Final = "tl.where({0}, {1}, {2})"
_ADD: Final = "{0} + {1}"
_SCALES: Final = ("{0} * {1}", "{0} / {1}")
_EVALUATED: Final[Mapping[str, Callable[..., Any]]] = {
    _WHERE: np.where,
    _ADD: np.add,
    "{0} & {1}": np.logical_and,
    "{0} | {1}": np.logical_or,
}
"""Operations that masks are made of, over arrays."""

FindConstant = Callable[[str], Any]


def simplify_score(score: Expr, queries: int, keys: int, find_constant: FindConstant) -> tuple[Expr, int | None]:
    """A masked score without constant masks that hide nothing or what comes later, and how far queries then see.

    Args:
        score: An expression of the accumulator, over the variables i and j.
        queries: How many values i has.
        keys: How many values j has.
        find_constant: The numbers of a buffer that are the same in every run, or None.
    """
    return _Simplifier(queries=queries, keys=keys, find_constant=find_constant).simplify(score)


@dataclass(frozen=True, kw_only=True)
class _Simplifier:
    queries: int
    keys: int
    find_constant: FindConstant

    def simplify(self, expr: Expr) -> tuple[Expr, int | None]:
        match expr:
            case Apply(text=text, args=args) if text == _ADD:
                return self._simplify_sum(expr, *args)
            case Apply(text=text, args=args) if text == _WHERE:
                return self._simplify_choice(expr, *args)
            case Apply(text=text, args=(first, Literal() as second)) if text in _SCALES and second.value > 0:
                inner, causal = self.simplify(first)
                return apply(text, inner, second, dtype=expr.dtype), causal
            case Convert():
                inner, causal = self.simplify(expr.arg)
                return convert(inner, expr.dtype), causal
            case _:
                return expr, None

    def _simplify_sum(self, whole: Expr, first: Expr, second: Expr) -> tuple[Expr, int | None]:
        own, mask = (first, second) if _has_score(first) else (second, first)
        if _has_score(mask):
            return whole, None
        inner, causal = self.simplify(own)
        values = self._evaluate(mask)
        if values is not None and np.all((values == 0) | (values <= _HIDDEN)):
            seen = self._find_reach(values == 0)
            if seen is not None:
                return inner, _narrower(causal, seen)
        return apply(_ADD, inner, mask, dtype=whole.dtype), causal

    def _simplify_choice(self, whole: Expr, condition: Expr, first: Expr, second: Expr) -> tuple[Expr, int | None]:
        own, other = (first, second) if _has_score(first) else (second, first)
        hidden, is_seen = self._evaluate(other), self._evaluate(condition)
        if hidden is None or is_seen is None or _has_score(condition) or np.any(hidden > _HIDDEN):
            return whole, None
        seen = self._find_reach(is_seen if own is first else ~is_seen)
        if seen is None:
            return whole, None
        inner, causal = self.simplify(own)
        return inner, _narrower(causal, seen)

    def _find_reach(self, is_seen: Any) -> int | None:
        """How many keys after its own number each query sees, where that is the same for all."""
        whole = np.broadcast_to(is_seen, (self.queries, self.keys))
        if whole.all():
            return self.keys
        reach = int(np.count_nonzero(whole[0])) - 1
        later = np.arange(self.keys) > np.arange(self.queries)[:, None] + reach
        return reach if reach >= 0 and np.array_equal(whole, ~later) else None

    def _evaluate(self, expr: Expr) -> Any:
        """The numbers of an expression of constants, (queries, keys); None where there is more in it."""
        match expr:
            case Literal():
                return np.full((1, 1), expr.value)
            case Load():
                return self._read(expr)
            case Convert():
                found = self._evaluate(expr.arg)
                return None if found is None else found.astype(np.dtype(expr.dtype))
            case Apply(text=text, args=args) if text in _EVALUATED:
                parts = [self._evaluate(each) for each in args]
                if any(each is None for each in parts):
                    return None
                return (
                    np.where(*parts) if text == _WHERE else parts[0] & parts[1] if "&" in text else parts[0] + parts[1]
                )
            case _:
                return None

    def _read(self, expr: Load) -> Any:
        array = self.find_constant(expr.buffer)
        if array is None or expr.guard is not None:
            return None
        places = find_places(expr.index, {"i": np.arange(self.queries)[:, None], "j": np.arange(self.keys)[None, :]})
        return None if places is None else np.asarray(array).reshape(-1)[places]


def _has_score(expr: Expr) -> bool:
    return any(isinstance(each, Accumulator) for each in walk(expr))


def _narrower(first: int | None, second: int) -> int:
    return second if first is None else min(first, second)


def find_places(index: Index, values: dict[str, Any]) -> Any:
    """The places that an index has for values of its variables; None where it has others."""
    total: Any = index.constant
    for atom, factor in index.terms:
        match atom:
            case Var():
                found = values.get(atom.name)
            case Quotient() | Remainder():
                inner = find_places(atom.of, values)
                is_quotient = isinstance(atom, Quotient)
                found = None if inner is None else inner // atom.by if is_quotient else inner % atom.by
            case _:
                found = None
        if found is None:
            return None
        total = total + found * factor
    return np.asarray(total)
