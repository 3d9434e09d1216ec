"""From which step to which each value of a program is needed."""

from __future__ import annotations

from dovetail.plan.manifest import ProgramRecord

__all__ = ["value_lifetimes"]


def value_lifetimes(program: ProgramRecord) -> dict[int, tuple[int, int]]:
    """Value -> first and last step that touches it; memory that is shared lives as long as its last user."""
    spans: dict[int, tuple[int, int]] = {}
    for position, step in enumerate(program.steps):
        captured = [outside for body in step.bodies for outside, _ in body.captures]
        for index in (*step.inputs, *step.outputs, *step.shape_inputs, *captured):
            if index >= 0:
                first, _ = spans.get(index, (position, position))
                spans[index] = (first, position)
    for position, step in enumerate(program.steps):
        if step.kind == "copy":
            _extend_copied(program, spans, position, len(program.steps))
    # Outputs are read by the caller after the last step.
    for index in program.outputs:
        if index in spans:
            spans[index] = (spans[index][0], len(program.steps))
    roots = _roots(program)
    for index, root in enumerate(roots):
        if root != index and index in spans and root in spans:
            spans[root] = (min(spans[root][0], spans[index][0]), max(spans[root][1], spans[index][1]))
    return spans


def _extend_copied(program: ProgramRecord, spans: dict[int, tuple[int, int]], position: int, end: int) -> None:
    """Keep what a copy reads or writes outside of its own device: it is under way until somebody waits for it."""
    step = program.steps[position]
    source, target = step.inputs[0], step.outputs[0]
    if program.values[source].memory != step.provider:
        spans[source] = (spans[source][0], end)
    if program.values[target].memory != step.provider and spans[target][1] == position:
        spans[target] = (spans[target][0], end)


def _roots(program: ProgramRecord) -> list[int]:
    """The value whose memory each value uses; a value shares only memory of one that was made before it."""
    roots: list[int] = []
    for index, value in enumerate(program.values):
        is_shared = value.alias is not None and 0 <= value.alias < index
        roots.append(roots[value.alias] if is_shared and value.alias is not None else index)
    return roots
