"""Minimise a sum of small cost tables over discrete variables, exactly, by eliminating one variable after the other.

Chains and trees take one small table a variable; a graph with cycles takes tables that grow with how tangled it is,
and when one would grow past a limit there is no answer. Pure arithmetic; what variables mean is the caller's business.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["CostFactor", "minimise"]

Table: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class CostFactor:
    """A cost for every combination of values of some variables: one axis a variable, in the order of ``scope``."""

    scope: tuple[int, ...]
    table: Table


@dataclass(frozen=True)
class _Decision:
    """The best value of an eliminated variable for every combination of the variables it depended on."""

    variable: int
    scope: tuple[int, ...]
    best: npt.NDArray[np.intp]


def minimise(sizes: Sequence[int], factors: Iterable[CostFactor], *, max_table: int) -> list[int] | None:
    """The value of every variable in the cheapest combination, or None when a table would pass ``max_table``.

    Among equal sums lower values win, variable by variable in the reverse of the order of elimination.

    >>> tie = Factor((0, 1), np.array([[5.0, 1.0], [1.0, 5.0]]))
    >>> minimise([2, 2], [tie], max_table=4)
    [0, 1]
    """
    return _Elimination(sizes, factors).run(max_table)


class _Elimination:
    def __init__(self, sizes: Sequence[int], factors: Iterable[CostFactor]) -> None:
        self._sizes = sizes
        self._touching: list[dict[int, CostFactor]] = [{} for _ in sizes]
        self._count = 0
        for factor in factors:
            self._add(factor)

    def run(self, max_table: int) -> list[int] | None:
        """Eliminate the variable with the smallest table each time, then read the decisions backwards."""
        # Of equal tables the later variable goes first, so that the earlier ones are decided first in the end.
        heap = [(self._table_size(v), -v) for v, size in enumerate(self._sizes) if size > 1]
        heapq.heapify(heap)
        decisions: dict[int, _Decision] = {}
        while heap:
            size, negated = heapq.heappop(heap)
            variable = -negated
            if variable in decisions or size != self._table_size(variable):
                continue  # an entry that a later one replaced
            if size > max_table:
                return None
            decisions[variable] = decision = self._eliminate(variable)
            for other in decision.scope:
                heapq.heappush(heap, (self._table_size(other), -other))
        return self._read(reversed(decisions.values()))

    def _read(self, decisions: Iterable[_Decision]) -> list[int]:
        values = [0] * len(self._sizes)
        for decision in decisions:
            values[decision.variable] = int(decision.best[tuple(values[v] for v in decision.scope)])
        return values

    def _add(self, factor: CostFactor) -> None:
        """Keep a factor with its axes in order and without those of variables that have one value only."""
        order = sorted(range(len(factor.scope)), key=lambda axis: factor.scope[axis])
        scope = tuple(v for v in sorted(factor.scope) if self._sizes[v] > 1)
        table = np.transpose(factor.table, order).reshape([self._sizes[v] for v in scope])
        for variable in scope:
            self._touching[variable][self._count] = CostFactor(scope, table)
        self._count += 1

    def _scope(self, variable: int) -> list[int]:
        return sorted({variable}.union(*(factor.scope for factor in self._touching[variable].values())))

    def _table_size(self, variable: int) -> int:
        return math.prod(self._sizes[v] for v in self._scope(variable))

    def _eliminate(self, variable: int) -> _Decision:
        scope = self._scope(variable)
        total = np.zeros([self._sizes[v] for v in scope])
        for number, factor in list(self._touching[variable].items()):
            total += factor.table[tuple(slice(None) if v in factor.scope else None for v in scope)]
            for member in factor.scope:
                del self._touching[member][number]
        axis = scope.index(variable)
        rest = tuple(v for v in scope if v != variable)
        if rest:
            self._add(CostFactor(rest, total.min(axis=axis)))
        return _Decision(variable, rest, np.asarray(total.argmin(axis=axis)))
