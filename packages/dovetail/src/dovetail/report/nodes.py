"""The nodes that a report draws: one a step, the parts of a partition, and for control flow the steps of its bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dovetail.plan.manifest import LayerRecord, Manifest

__all__ = ["ReportNode", "list_nodes"]


@dataclass(kw_only=True)
class ReportNode:
    """One box of the graph, and what is told of it."""

    name: str
    op: str
    kind: str
    """The kind of its step, or "part" for what a compiled partition does."""
    provider: str
    step: int
    """The step of the program that it is, or is in."""
    step_name: str
    inputs: list[int] = field(default_factory=list)
    """The nodes that make what it reads."""
    parent: int = -1
    """The control flow that it is in the body of."""
    body: int = -1
    """Which of its bodies."""
    is_ordered: bool = False
    """Whether ``inputs`` is only the order in which parts run, as its provider tells no more."""
    reads: list[dict[str, Any]] = field(default_factory=list)
    """Its input tensors: name, type, format and sizes."""
    makes: list[dict[str, Any]] = field(default_factory=list)
    dtype: str = ""
    layers: list[str] = field(default_factory=list)
    made_by: str = ""
    reason: str = ""
    """Why a copy, a reformat or a cast is there."""
    refusal: str = ""
    """Why its provider could not do better."""
    tactic: str = ""
    tables: list[int] = field(default_factory=list)
    """The tables of the tuner that are about it, by number."""
    flops: int | None = None
    bytes: int | None = None
    workspace_bytes: int | None = None
    time_us: float | None = None
    time_source: str = ""
    """"bench" or "tuner"."""
    runs_as: str = ""
    """What the provider makes of it when it is loaded, with the operator, where the profile told so."""
    within: int = -1
    """The node that it runs within, where that was found at run time."""


def list_nodes(details: Mapping[str, Any], manifest: Manifest, profile: int) -> list[ReportNode]:
    """The nodes of a program that ``describe_details`` described, in the order they run."""
    tables = [(number, table) for number, table in enumerate(manifest.tuning) if table.profile == profile]
    return _Lister(tables).add_program(details, -1, -1, {})


class _Place(NamedTuple):
    """A step, and where in the program it stands."""

    step: Mapping[str, Any]
    values: Sequence[Mapping[str, Any]]
    number: int
    """The step of the program that it is, or is in."""
    parent: int
    body: int
    makers: dict[int, int]
    """Value -> the node that made it so far."""


class _Lister:
    def __init__(self, tables: Sequence[tuple[int, LayerRecord]]) -> None:
        self._nodes: list[ReportNode] = []
        self._tables: dict[str, list[int]] = {}
        self._chosen: dict[str, float | None] = {}
        for number, table in tables:
            self._tables.setdefault(table.name, []).append(number)
            self._chosen[table.name] = next((each.time_us for each in table.candidates if each.chosen), None)

    def add_program(
        self, details: Mapping[str, Any], parent: int, body: int, makers: dict[int, int]
    ) -> list[ReportNode]:
        """Add the steps of a program; ``makers`` says which node made each value so far."""
        for position, step in enumerate(details["steps"]):
            number = position if parent < 0 else self._nodes[parent].step
            place = _Place(step, details["values"], number, parent, body, makers)
            if step["nodes"]:
                self._add_parts(place)
            else:
                self._add_step(place)
        return self._nodes

    def _add_step(self, place: _Place) -> None:
        step, values, makers = place.step, place.values, place.makers
        index, tables = len(self._nodes), self._tables.get(step["name"], [])
        time_us = self._chosen.get(step["name"])
        sources = [makers[each] for each in (*step["inputs"], *step["captures"]) if each in makers]
        makes = [_tensor(values[each]) for each in step["outputs"]]
        node = ReportNode(
            name=step["name"],
            op=step["op"] or step["kind"].capitalize(),
            kind=step["kind"],
            provider=step["provider"],
            step=place.number,
            step_name=step["name"],
            inputs=sorted(set(sources)),
            parent=place.parent,
            body=place.body,
            reads=[_tensor(values[each]) for each in step["inputs"]],
            makes=makes,
            dtype=makes[0]["dtype"] if makes else "",
            layers=step["layers"],
            made_by=step["made_by"],
            reason=step["reason"],
            tactic=step["tactic"] or (f"#{step['tactic_number']}" if step["tactic_number"] else ""),
            tables=tables,
            flops=step["flops"],
            bytes=step["bytes"],
            workspace_bytes=step["workspace_bytes"] or None,
            time_us=time_us,
            time_source="" if time_us is None else "tuner",
        )
        self._nodes.append(node)
        makers.update(dict.fromkeys(step["outputs"], index))
        for body_number, body in enumerate(step["bodies"]):
            self.add_program(body, index, body_number, {})

    def _add_parts(self, place: _Place) -> None:
        """The parts of a partition, by the report that its provider left."""
        step, values, makers = place.step, place.values, place.makers
        first, parts = len(self._nodes), step["nodes"]
        is_linked = len(parts) == 1 or any(part["inputs"] or part["reads"] for part in parts)
        before = [makers[each] for each in step["inputs"] if each in makers]
        has_ports = any(part["reads"] for part in parts)
        for position, part in enumerate(parts):
            border = [makers[step["inputs"][each]] for each in part["reads"] if step["inputs"][each] in makers]
            inner = [first + each for each in part["inputs"]]
            if is_linked and not has_ports and not inner and part["parent"] < 0:
                border = before  # its provider does not say what is read at the border
            if not is_linked:
                border, inner = (before, []) if position == 0 else ([], [first + position - 1])
            tables = [each for layer in (part["name"], *part["layers"]) for each in self._tables.get(layer, ())]
            self._nodes.append(
                ReportNode(
                    name=part["name"] or f"{step['name']} #{position}",
                    op=part["op"],
                    kind="part",
                    provider=step["provider"],
                    step=place.number,
                    step_name=step["name"],
                    inputs=sorted({*border, *inner}),
                    parent=place.parent if part["parent"] < 0 else first + part["parent"],
                    body=place.body if part["parent"] < 0 else part["body"],
                    is_ordered=not is_linked,
                    reads=[_tensor(values[step["inputs"][each]]) for each in part["reads"]],
                    makes=_part_outputs(part, step, values),
                    dtype=part["dtype"],
                    layers=part["layers"],
                    made_by=part["made_by"],
                    refusal="; ".join(step["refusals"][layer] for layer in part["layers"] if layer in step["refusals"]),
                    tactic=part["tactic"],
                    tables=list(dict.fromkeys(tables)),
                    flops=part["flops"],
                    bytes=part["bytes"],
                    time_us=part["time_us"],
                    time_source="" if part["time_us"] is None else "tuner",
                )
            )
            makers.update({step["outputs"][each]: first + position for each in part["writes"]})
        last = len(self._nodes) - 1
        for output in step["outputs"]:
            if not is_linked or makers.get(output, -1) < first:
                makers[output] = last


def _tensor(value: Mapping[str, Any]) -> dict[str, Any]:
    shown = {key: value[key] for key in ("name", "dtype", "format", "sizes")}
    if value["kind"] == "constant":
        shown["constant"] = True
    if value["memory"]:
        shown["memory"] = value["memory"]
    return shown


def _part_outputs(
    part: Mapping[str, Any], step: Mapping[str, Any], values: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    if part["writes"]:
        return [_tensor(values[step["outputs"][each]]) for each in part["writes"]]
    if not part["dtype"]:
        return []
    shape = part["shape"]
    sizes = None if shape is None or -1 in shape else shape
    return [{"name": "", "dtype": part["dtype"], "format": "LINEAR", "sizes": sizes}]
