"""Delta debugging finds minimal parts, and few trials are enough for one culprit."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.tools.reduction.ddmin import minimize


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 60), st.data())
def test_every_item_that_is_needed_and_no_other(count: int, data: st.DataObject) -> None:
    needed = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=min(count, 5)))
    assert minimize(range(count), lambda part: needed <= set(part)) == sorted(needed)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 30), st.sets(st.frozensets(st.integers(0, 29), min_size=1), max_size=5))
def test_nothing_more_can_be_left_out(count: int, groups: set[frozenset[int]]) -> None:
    """Any property at all: here, to contain one of some groups, or everything."""
    everything = set(range(count))

    def has_property(part: list[int]) -> bool:
        return set(part) == everything or any(group <= set(part) for group in groups)

    found = minimize(range(count), has_property)
    assert has_property(found)
    for item in found:
        rest = [other for other in found if other != item]
        assert not rest or not has_property(rest)


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 5000), st.data())
def test_one_culprit_is_found_by_halving(count: int, data: st.DataObject) -> None:
    culprit, trials = data.draw(st.integers(0, count - 1)), []

    def has_property(part: list[int]) -> bool:
        trials.append(len(part))
        return culprit in part

    assert minimize(range(count), has_property) == [culprit]
    assert len(trials) <= 2 * count.bit_length()


def test_no_part_is_asked_twice_and_none_is_empty() -> None:
    asked = []

    def has_property(part: list[int]) -> bool:
        asked.append(tuple(part))
        return len(part) >= 3

    minimize(range(11), has_property)
    assert len(asked) == len(set(asked))
    assert () not in asked
    assert minimize([], lambda part: True) == []
