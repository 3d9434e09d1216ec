"""The search for nodes that do not compile finds them, no others, in few tries and never in more than allowed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.build.assign.faults import FaultSearch, find_faults


class _Compiler:
    """Refuses runs of numbers with one of some numbers in them, or with both of a pair; counts what it is asked."""

    def __init__(self, singles: frozenset[int], pairs: frozenset[tuple[int, int]] = frozenset()) -> None:
        self.singles = singles
        self.pairs = pairs
        self.asked: list[tuple[int, ...]] = []

    def __call__(self, nodes: Sequence[int]) -> str | None:
        self.asked.append(tuple(nodes))
        bad = sorted(self.singles.intersection(nodes))
        both = sorted(pair for pair in self.pairs if set(pair) <= set(nodes))
        return f"no {bad}" if bad else f"no {both}" if both else None

    def search(self, nodes: Sequence[int], max_tries: int = 10_000) -> FaultSearch[int, str]:
        error = self(nodes)
        assert error is not None
        self.asked.clear()
        return find_faults(nodes, error, self, max_tries=max_tries)


SIZES = st.integers(1, 200)


@st.composite
def _singles(draw: st.DrawFn) -> tuple[int, frozenset[int]]:
    size = draw(SIZES)
    return size, draw(st.frozensets(st.integers(0, size - 1), min_size=1, max_size=6))


@st.composite
def _pairs(draw: st.DrawFn) -> tuple[int, frozenset[int], frozenset[tuple[int, int]]]:
    size = draw(st.integers(2, 60))
    number = st.integers(0, size - 1)
    pair = st.tuples(number, number).filter(lambda p: p[0] < p[1])
    return size, draw(st.frozensets(number, max_size=3)), draw(st.frozensets(pair, min_size=1, max_size=4))


@settings(max_examples=100, deadline=None)
@given(_singles())
def test_single_nodes_are_found_exactly_and_in_few_tries(case: tuple[int, frozenset[int]]) -> None:
    size, singles = case
    compiler = _Compiler(singles)
    search = compiler.search(range(size))
    assert sorted(tuple(fault.nodes) for fault in search.faults) == [(node,) for node in sorted(singles)]
    assert all(fault.error == f"no {[*fault.nodes]}" for fault in search.faults if size > 1)
    assert not any(fault.companions for fault in search.faults)
    assert search.num_tries == len(compiler.asked) <= 2 * len(singles) * math.ceil(math.log2(size))


@settings(max_examples=100, deadline=None)
@given(_singles(), st.integers(0, 20))
def test_there_are_never_more_tries_than_allowed(case: tuple[int, frozenset[int]], max_tries: int) -> None:
    size, singles = case
    compiler = _Compiler(singles)
    search = compiler.search(range(size), max_tries)
    assert search.num_tries == len(compiler.asked) <= max_tries
    taken = [node for fault in search.faults for node in fault.nodes]
    assert len(taken) == len(set(taken))
    assert singles <= set(taken)
    assert all(singles.intersection(fault.nodes) for fault in search.faults)


@settings(max_examples=100, deadline=None)
@given(_pairs())
def test_what_fails_only_together_is_taken_apart(
    case: tuple[int, frozenset[int], frozenset[tuple[int, int]]],
) -> None:
    size, singles, pairs = case
    compiler, left, taken = _Compiler(singles, pairs), list(range(size)), set[int]()
    while compiler(left) is not None:
        search = compiler.search(left)
        assert search.faults
        for fault in search.faults:
            (node,) = fault.nodes
            taken.add(node)
            # With its companions it fails and without it they do not, so that it is no other node's fault.
            assert compiler([*fault.companions, node]) is not None
            assert compiler(fault.companions) is None
        left = [node for node in left if node not in taken]
    assert singles <= taken <= singles | {node for pair in pairs for node in pair}
    assert len(taken) <= len(singles) + len(pairs)


def test_a_pair_is_found_in_few_tries() -> None:
    compiler = _Compiler(frozenset(), frozenset([(10, 900)]))
    (fault,) = compiler.search(range(1000)).faults
    assert (fault.nodes, fault.companions) == (range(900, 901), range(900))
    assert len(compiler.asked) <= 2 + 9


@settings(max_examples=50, deadline=None)
@given(_pairs(), st.integers(0, 12))
def test_nothing_is_tried_twice_and_every_try_is_a_run_of_neighbours(
    case: tuple[int, frozenset[int], frozenset[tuple[int, int]]], max_tries: int
) -> None:
    size, singles, pairs = case
    compiler = _Compiler(singles, pairs)
    search = compiler.search(range(size), max_tries)
    assert search.num_tries <= max_tries
    assert len(set(compiler.asked)) == len(compiler.asked)
    assert all(b == a + 1 for run in compiler.asked for a, b in pairwise(run))
    assert all(0 < len(run) < size for run in compiler.asked)


def test_tries_that_run_out_leave_small_pieces() -> None:
    compiler = _Compiler(frozenset(range(64)))
    search = compiler.search(range(64), max_tries=14)
    assert [len(fault.nodes) for fault in search.faults] == [8] * 8
    assert search.num_tries == 14
