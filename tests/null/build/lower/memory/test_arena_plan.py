"""Workspaces get places in the arena of their memory that no value needs meanwhile."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.build.lower.memory.arena_plan import plan_memory
from dovetail.plan.lifetimes import value_lifetimes
from dovetail.plan.manifest import ProgramRecord, StepRecord, ValueRecord
from dovetail.plan.workspaces import find_workspaces, max_workspace, walk_steps


def _step(position: int, needs: int, memory: str, bodies: list[ProgramRecord] | None = None) -> StepRecord:
    return StepRecord(
        name=f"s{position}",
        kind="control" if bodies else "kernel",
        provider=memory or "cpu",
        op="Op",
        inputs=[position],
        outputs=[position + 1],
        workspace_bytes=needs,
        bodies=bodies or [],
    )


def _body(needs: list[int], memory: str) -> ProgramRecord:
    values = [ValueRecord(name=f"b{i}", dtype="float32", kind="dynamic", memory=memory) for i in range(len(needs) + 1)]
    return ProgramRecord(inputs=[], outputs=[], values=values, steps=[_step(i, n, memory) for i, n in enumerate(needs)])


@st.composite
def _programs(draw: st.DrawFn) -> ProgramRecord:
    count = draw(st.integers(1, 12))
    sizes = [draw(st.integers(1, 2000)) for _ in range(count + 1)]
    memories = [draw(st.sampled_from(["", "gpu"])) for _ in range(count + 1)]
    values = [
        ValueRecord(name=f"v{i}", dtype="uint8", kind="planned", dims=[n], size_bytes=n, memory=m)
        for i, (n, m) in enumerate(zip(sizes, memories, strict=True))
    ]
    steps = []
    for position in range(count):
        needs = draw(st.sampled_from([0, 10, 300, 5000]))
        inner = draw(st.lists(st.sampled_from([0, 20, 700]), max_size=3))
        bodies = [_body(inner, draw(st.sampled_from(["", "gpu"])))] if inner else None
        steps.append(_step(position, 0 if bodies else needs, memories[position + 1], bodies))
    return ProgramRecord(inputs=[], outputs=[], values=values, steps=steps)


@settings(deadline=None, max_examples=200)
@given(_programs())
def test_no_value_that_is_needed_lies_on_a_workspace(program: ProgramRecord) -> None:
    planned = plan_memory(program)
    arenas = {"": planned.arena_bytes, **planned.arenas}
    spans = value_lifetimes(planned)
    for position, owner, step in walk_steps(planned):
        assert (step.workspace_offset is not None) == (step.workspace_bytes > 0)
        if step.workspace_offset is None:
            continue
        memory = owner.values[step.outputs[0]].memory
        start, stop = step.workspace_offset, step.workspace_offset + step.workspace_bytes
        assert stop <= arenas[memory]
        for index, value in enumerate(planned.values):
            first, last = spans[index]
            if value.memory == memory and first <= position <= last:
                begin = value.offset or 0
                assert begin + (value.size_bytes or 0) <= start or stop <= begin


def test_steps_of_a_body_share_one_workspace() -> None:
    values = [ValueRecord(name=f"v{i}", dtype="uint8", kind="planned", dims=[4], size_bytes=4) for i in range(2)]
    program = ProgramRecord(
        inputs=[], outputs=[], values=values, steps=[_step(0, 0, "", [_body([100, 300], "gpu"), _body([200], "gpu")])]
    )
    (group,) = find_workspaces(program)
    assert (group.memory, group.position, list(group.steps)) == ("gpu", 0, [1, 2, 3])
    assert max_workspace(program) == 300
    planned = plan_memory(program)
    assert planned.arenas == {"gpu": 512}
    assert [step.workspace_offset for _, _, step in walk_steps(planned)] == [None, 0, 0, 0]
