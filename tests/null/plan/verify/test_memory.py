"""No two live values on the same bytes: the check against one that compares every pair."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dovetail.errors import PlanCorruptError
from dovetail.plan.lifetimes import value_lifetimes
from dovetail.plan.manifest import Manifest, ProgramRecord, StepRecord, ValueRecord
from dovetail.plan.verify.memory import verify_arena
from dovetail.provider.memory.arena import ALIGNMENT_BYTES, Span, plan_offsets
from tests.support.dims import read_dims
from tests.support.handmade_plans import make_manifest

STEPS = 8

spans = st.tuples(st.integers(0, STEPS - 1), st.integers(0, STEPS - 1)).map(sorted)
places = st.tuples(spans, st.integers(0, 5), st.integers(0, 3))


def _program(placed: list[tuple[list[int], int, int]]) -> ProgramRecord:
    """A program whose values live from one step to another, at an offset, each some alignments long."""
    values = [
        ValueRecord(
            name=str(index),
            dtype="uint8",
            kind="planned",
            dims=read_dims([units * ALIGNMENT_BYTES]),
            offset=offset * ALIGNMENT_BYTES,
            size_bytes=units * ALIGNMENT_BYTES,
        )
        for index, (_, offset, units) in enumerate(placed)
    ]
    steps = [
        StepRecord(
            name=str(number),
            kind="kernel",
            provider="cpu",
            op="Op",
            inputs=[index for index, (span, _, _) in enumerate(placed) if span[1] == number],
            outputs=[index for index, (span, _, _) in enumerate(placed) if span[0] == number],
        )
        for number in range(STEPS)
    ]
    arena = max((offset + max(units, 1) for _, offset, units in placed), default=0) * ALIGNMENT_BYTES
    return ProgramRecord(inputs=[], outputs=[], values=values, steps=steps, arena_bytes=arena)


def _accepts(program: ProgramRecord, manifest: Manifest) -> bool:
    try:
        verify_arena(program, manifest, 0, "program 0")
    except PlanCorruptError as error:
        assert "lies on the bytes of another value" in error.what  # noqa: PT017 - any other rule would be a mistake
        return False
    return True


def _is_disjoint(placed: list[tuple[list[int], int, int]]) -> bool:
    for position, (one, start, size) in enumerate(placed):
        for other, other_start, other_size in placed[position + 1 :]:
            together = one[0] <= other[1] and other[0] <= one[1]
            if together and start < other_start + other_size and other_start < start + size and size and other_size:
                return False
    return True


@given(st.lists(places, max_size=8))
def test_the_check_finds_exactly_the_values_that_overlap(placed: list[tuple[list[int], int, int]]) -> None:
    manifest = make_manifest(inputs=[], profiles=[])
    assert _accepts(_program(placed), manifest) == _is_disjoint(placed)


@given(st.lists(st.tuples(spans, st.integers(0, 3)), max_size=20))
def test_what_the_planner_places_is_accepted(wanted: list[tuple[list[int], int]]) -> None:
    offsets, _ = plan_offsets([Span(units * ALIGNMENT_BYTES, *span) for span, units in wanted])
    placed = [(span, o // ALIGNMENT_BYTES, units) for (span, units), o in zip(wanted, offsets, strict=True)]
    assert _accepts(_program(placed), make_manifest(inputs=[], profiles=[]))


def test_a_long_chain_of_shared_memory_needs_no_stack() -> None:
    count = 20_000
    values = [
        ValueRecord(
            name="", dtype="uint8", kind="planned", dims=read_dims([1]), alias=None if index == 0 else index - 1
        )
        for index in range(count)
    ]
    steps = [
        StepRecord(name="", kind="plugin", provider="cpu", op="Op", inputs=[index], outputs=[index + 1])
        for index in range(count - 1)
    ]
    program = ProgramRecord(inputs=[], outputs=[count - 1], values=values, steps=steps)
    assert value_lifetimes(program)[0] == (0, count - 1)
    loop = ProgramRecord(
        inputs=[], outputs=[], values=[ValueRecord(name="", dtype="int8", kind="planned", alias=0)], steps=[]
    )
    assert value_lifetimes(loop) == {}
