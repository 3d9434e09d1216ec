"""From a partition that does not compile to the nodes at fault, in few tries. Pure planning.

The halves of what failed are tried, then the halves of those that failed, until single nodes are left. Where both
halves compile the fault is in what they make together: the shortest start of the two that fails is looked for, and its
last node is the one to take out. Every try is a run of neighbours in the order given, so that a partition's nodes in
topological order give parts that are convex as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Fault", "FaultSearch", "find_faults"]

N = TypeVar("N")
E = TypeVar("E")


@dataclass(frozen=True, kw_only=True)
class Fault(Generic[N, E]):
    """Nodes to take out, and the error of the smallest run of nodes seen to fail because of them."""

    nodes: Sequence[N]
    """One node, or more where there were no tries left."""
    error: E
    companions: Sequence[N] = ()
    """The nodes before it that compile without it, where it fails only together with them."""


@dataclass(frozen=True, kw_only=True)
class FaultSearch(Generic[N, E]):
    """What a search found and took."""

    faults: list[Fault[N, E]]
    num_tries: int


def find_faults(
    nodes: Sequence[N], error: E, try_compile: Callable[[Sequence[N]], E | None], *, max_tries: int
) -> FaultSearch[N, E]:
    """Find the nodes without which the rest may compile; what is left should be tried again.

    Args:
        nodes: Nodes that do not compile together.
        error: What was said of them.
        try_compile: Compiles a run of them and gives the error back, or None.
        max_tries: After so many calls whatever is still suspected is a fault as a whole.

    >>> search = find_faults("abcdefgh", "no e", lambda part: "no e" if "e" in part else None, max_tries=10)
    >>> [(fault.nodes, fault.error) for fault in search.faults], search.num_tries
    ([('e', 'no e')], 6)
    """
    return _Search(nodes, try_compile, max_tries).run(error)


class _Search(Generic[N, E]):
    def __init__(self, nodes: Sequence[N], try_compile: Callable[[Sequence[N]], E | None], max_tries: int) -> None:
        self._nodes = nodes
        self._try_compile = try_compile
        self._max_tries = max_tries
        self._num_tries = 0
        self._faults: list[Fault[N, E]] = []

    def run(self, error: E) -> FaultSearch[N, E]:
        # In order of size: when tries run out, what is still suspected is in pieces as small as they come.
        failed: deque[tuple[int, int, E]] = deque([(0, len(self._nodes), error)])
        while failed:
            start, stop, error = failed.popleft()
            if stop - start == 1 or self._tries_left < 2:
                self._add(start, stop, error)
            else:
                failed.extend(self._split(start, stop, error))
        return FaultSearch(faults=self._faults, num_tries=self._num_tries)

    @property
    def _tries_left(self) -> int:
        return self._max_tries - self._num_tries

    def _split(self, start: int, stop: int, error: E) -> list[tuple[int, int, E]]:
        """The halves that fail; where none does, the fault is found here."""
        middle = (start + stop) // 2
        tried = [(a, b, self._try(a, b)) for a, b in ((start, middle), (middle, stop))]
        halves = [(a, b, failure) for a, b, failure in tried if failure is not None]
        if not halves:
            self._find_end(start, middle, stop, error)
        return halves

    def _find_end(self, start: int, passing: int, failing: int, error: E) -> None:
        """Narrow down where the shortest failing run from ``start`` ends, between one that compiles and one not."""
        while failing - passing > 1 and self._tries_left:
            middle = (passing + failing) // 2
            failure = self._try(start, middle)
            if failure is None:
                passing = middle
            else:
                failing, error = middle, failure
        self._add(passing, failing, error, companions=self._nodes[start:passing])

    def _try(self, start: int, stop: int) -> E | None:
        self._num_tries += 1
        return self._try_compile(self._nodes[start:stop])

    def _add(self, start: int, stop: int, error: E, *, companions: Sequence[N] = ()) -> None:
        self._faults.append(Fault(nodes=self._nodes[start:stop], error=error, companions=companions))
