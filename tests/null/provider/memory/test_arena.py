"""Placing values: neighbours in time are found as if all were looked at, and many values take no time squared."""

from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.provider.memory.arena import ALIGNMENT_BYTES, Span, align, plan_offsets


def _spans() -> st.SearchStrategy[list[Span]]:
    span = st.builds(
        lambda size, first, life: Span(size, first, first + life),
        st.integers(0, 3000),
        st.integers(0, 40),
        st.sampled_from([0, 1, 2, 5, 33]),
    )
    return st.lists(span, max_size=40)


def _lives_with(one: Span, other: Span) -> bool:
    return one.first <= other.last and other.first <= one.last


def _place_one_by_one(spans: list[Span]) -> list[int]:
    """The rule itself: the largest first, each into the first gap between all that live at the same time."""
    offsets = [0] * len(spans)
    placed: list[int] = []
    for index in sorted(range(len(spans)), key=lambda i: (-spans[i].size_bytes, i)):
        size, offset = max(align(spans[index].size_bytes), ALIGNMENT_BYTES), 0
        taken = [
            (offsets[i], max(align(spans[i].size_bytes), ALIGNMENT_BYTES))
            for i in placed
            if _lives_with(spans[i], spans[index])
        ]
        for start, length in sorted(taken):
            if offset + size <= start:
                break
            offset = max(offset, start + length)
        offsets[index] = offset
        placed.append(index)
    return offsets


@settings(max_examples=60, deadline=None)
@given(_spans())
def test_offsets_are_those_of_the_plain_rule(spans: list[Span]) -> None:
    offsets, total = plan_offsets(spans)
    assert offsets == _place_one_by_one(spans)
    ends = [offset + max(align(span.size_bytes), ALIGNMENT_BYTES) for offset, span in zip(offsets, spans, strict=True)]
    assert total == max(ends, default=0)


def test_a_long_chain_takes_no_time_squared() -> None:
    def seconds(count: int) -> float:
        spans = [Span(100 + i % 7, i, i + 1 + i % 3) for i in range(count)]
        start = time.thread_time()
        plan_offsets(spans)
        return time.thread_time() - start

    assert seconds(20_000) < 40 * max(seconds(2_000), 0.005)  # 100 times when every value is compared with every other
