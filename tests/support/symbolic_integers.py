"""Random integer formulas, and a comparison of symbolic integers with Python's."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from dovetail.errors import DovetailError

__all__ = [
    "DIM",
    "ELEMENT",
    "Implementation",
    "Tree",
    "apply_tree",
    "check_bounds",
    "check_values",
    "list_points",
    "list_values",
    "trees",
]

Tree = Any
"""An integer, the name of a symbol, or (operation, first, second)."""

DIM, ELEMENT = "n", "value_m_0"
"""A dimension, which is never negative, and an element of an integer input, which can be."""
RANGES = {DIM: (0, 6), ELEMENT: (-3, 4)}
OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "sum": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "prod": lambda a, b: a * b,
    "floor_div": lambda a, b: a // b,
    "ceil_div": lambda a, b: -(-a // b),
    "mod": lambda a, b: a % b,
    "max": max,
    "min": min,
    "equal": lambda a, b: int(a == b),
    "less": lambda a, b: int(a < b),
}


@dataclass(frozen=True, kw_only=True)
class Implementation:
    """One implementation of symbolic integers."""

    symbols: Mapping[str, Any]
    operations: Mapping[str, Callable[[Any, Any], Any]]
    constant: Callable[[int], Any]
    evaluate: Callable[[Any, Mapping[str, int]], int | None]
    """Value for these values of the symbols; None where the implementation calls the value unknown."""
    bounds: Callable[[Any], tuple[float, float]] | None = None
    raises_every_division: bool = True
    """False for normal forms, in which a division by zero can cancel: ``0 * (n // m)``."""


def trees(operations: tuple[str, ...] = tuple(OPERATIONS), max_leaves: int = 8) -> st.SearchStrategy[Tree]:
    """Formulas over a dimension, an element and small integers of both signs."""
    leaves = st.one_of(st.integers(-5, 6), st.sampled_from((DIM, ELEMENT)))
    return st.recursive(
        leaves, lambda parts: st.tuples(st.sampled_from(operations), parts, parts), max_leaves=max_leaves
    )


def list_points() -> Iterator[dict[str, int]]:
    """Every combination of values."""
    for values in itertools.product(*(range(low, high + 1) for low, high in RANGES.values())):
        yield dict(zip(RANGES, values, strict=True))


def apply_tree(tree: Tree, leaf: Callable[[Any], Any], operations: Mapping[str, Callable[[Any, Any], Any]]) -> Any:
    """Compute a formula with the operations of an implementation."""
    if not isinstance(tree, tuple):
        return leaf(tree)
    first, second = (apply_tree(part, leaf, operations) for part in tree[1:])
    return operations[tree[0]](first, second)


def list_values(tree: Tree) -> list[tuple[dict[str, int], int | None]]:
    """Every point with the value that Python computes; None where it divides by zero."""
    rows: list[tuple[dict[str, int], int | None]] = []
    for point in list_points():
        try:
            rows.append((point, apply_tree(tree, lambda leaf, at=point: at.get(leaf, leaf), OPERATIONS)))
        except ZeroDivisionError:
            rows.append((point, None))
    return rows


def _build(tree: Tree, implementation: Implementation) -> Any:
    def leaf(value: Any) -> Any:
        return implementation.symbols[value] if isinstance(value, str) else implementation.constant(value)

    return apply_tree(tree, leaf, implementation.operations)


def check_values(tree: Tree, implementation: Implementation) -> Any:
    """Compare every value with Python; return the built object, None where a constant is divided by zero."""
    rows = list_values(tree)
    try:
        built = _build(tree, implementation)
    except (DovetailError, ZeroDivisionError):
        assert any(value is None for _, value in rows), f"{tree} has values but cannot be built"
        return None
    for point, expected in rows:
        try:
            value = implementation.evaluate(built, point)
        except (DovetailError, ZeroDivisionError):
            assert expected is None, f"{tree} at {point} raises; expected {expected}"
            continue
        if expected is None:
            is_cancelled = not implementation.raises_every_division or value is None
            assert is_cancelled, f"{tree} at {point} divides by zero and gives {value}"
        else:
            assert value in (expected, None), f"{tree} at {point}"
    return built


def check_bounds(tree: Tree, built: Any, implementation: Implementation) -> None:
    """Require every value to be inside the bounds."""
    assert implementation.bounds is not None
    low, high = implementation.bounds(built)
    for point, value in list_values(tree):
        assert value is None or low <= value <= high, f"{tree} at {point} is {value}, outside of {low} to {high}"
