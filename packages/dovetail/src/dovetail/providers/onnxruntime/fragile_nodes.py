"""Nodes of a stored partition that ONNX Runtime does not refuse and that end the process when they run.

A model is checked when it is imported, with the onnx package. A plan runs without that package and may come from
anywhere, so the same forms are looked for in the bytes of its partitions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from dovetail.errors import PlanCorruptError
from dovetail.protobuf import Field, MalformedMessageError, read_fields
from dovetail.provider.schemas.node_limits import DIVISORS, FIRST_VARIADIC, is_bad_count

__all__ = ["find_fragile_node"]

_MODEL_PARTS: Final = {7: "graph", 25: "function"}
_NODE_LISTS: Final = {"graph": 1, "function": 7}
_FORMS: Final = ("num_outputs", "num_scan_inputs", "perm", "split")
_INPUT, _OUTPUT, _OP, _ATTRIBUTE = 1, 2, 4, 5
_ATTRIBUTE_NAME, _INT, _GRAPH, _INTS, _GRAPHS = 1, 3, 6, 8, 11
_ASKED: Final = re.compile(
    b"|".join((b"\\x0a\\x00", b"branch", b"body", *(name.encode() for name in (*DIVISORS, *_FORMS))))
)
"""What a node has in its bytes that is to be looked at: an absent input, a body, or one of these attributes."""
_SMALL_COUNTS: Final = re.compile(
    b"\\x0a.(?:" + b"|".join(name.encode() for name in DIVISORS) + b")(?:[\\x18\\x40][\\x01-\\x7f])+\\xa0\\x01.",
    re.DOTALL,
)
"""Counts as nearly every node has them, from 1 to 127: nothing can be wrong with those, and they need not be read."""
_MAX_DEPTH: Final = 100
"""How deep a reader of ONNX follows messages inside messages."""


@dataclass
class _Node:
    """What is looked at of a node."""

    op: str = ""
    inputs: list[int] = field(default_factory=list)
    """The lengths of their names."""
    num_outputs: int = 0
    numbers: dict[str, list[int]] = field(default_factory=dict)
    """Attributes that are numbers."""


def find_fragile_node(model: bytes | memoryview) -> str | None:
    """What is wrong with the first such node; None where there is none.

    Raises:
        PlanCorruptError: The bytes are no model.
    """
    try:
        for node in _read_model(memoryview(model)):
            if problem := _find_problem(node):
                return f"{node.op}: {problem}"
    except MalformedMessageError as error:
        raise PlanCorruptError("a compiled partition is malformed", fix="build the plan again") from error
    return None


def _find_problem(node: _Node) -> str | None:
    absent = [index for index, length in enumerate(node.inputs) if not length]
    if absent and absent[-1] >= FIRST_VARIADIC.get(node.op, len(node.inputs)):
        return f"input {absent[-1]} is absent"
    order, counts = node.numbers.get("perm", []), node.numbers.get("num_outputs", [])
    if sorted(order) != list(range(len(order))):
        return "attribute 'perm' is no order of axes"
    if node.op == "Split" and counts and counts[-1] != node.num_outputs:
        return f"attribute 'num_outputs' is {counts[-1]}, and it has {node.num_outputs} outputs"
    scans = node.numbers.get("num_scan_inputs", [1])[-1]
    if node.op == "Scan" and not 0 < scans <= len(node.inputs):
        return f"attribute 'num_scan_inputs' is {scans}, and it has {len(node.inputs)} inputs"
    sizes = node.numbers.get("split", [])
    if node.op == "Split" and sizes and (len(sizes) != node.num_outputs or min(sizes) < 0):
        return "attribute 'split' does not fit the outputs"
    bad = [name for name, numbers in node.numbers.items() if is_bad_count(node.op, name, numbers)]
    return f"attribute '{bad[0]}' is no count" if bad else None


def _read_model(data: memoryview) -> Iterator[_Node]:
    for part in read_fields(data):
        if part.number in _MODEL_PARTS and part.has_length:
            yield from _read_nodes(data, part, _NODE_LISTS[_MODEL_PARTS[part.number]], 0)


def _read_nodes(data: memoryview, owner: Field, number: int, depth: int) -> Iterator[_Node]:
    if depth > _MAX_DEPTH:
        raise MalformedMessageError
    for part in read_fields(data, owner.content, owner.end):
        if part.number == number and part.has_length:
            if _ASKED.search(data, part.content, part.end) is None:
                continue
            bodies: list[Field] = []
            yield _read_node(data, part, bodies)
            for body in bodies:
                yield from _read_nodes(data, body, _NODE_LISTS["graph"], depth + 1)


def _read_node(data: memoryview, node: Field, bodies: list[Field]) -> _Node:
    found = _Node()
    for part in read_fields(data, node.content, node.end):
        if part.number == _INPUT:
            found.inputs.append(part.end - part.content)
        elif part.number == _OUTPUT:
            found.num_outputs += 1
        elif part.number == _OP:
            found.op = bytes(data[part.content : part.end]).decode(errors="replace")
        elif part.number == _ATTRIBUTE and part.has_length:
            _read_attribute(data, part, found, bodies)
    return found


def _read_attribute(data: memoryview, attribute: Field, node: _Node, bodies: list[Field]) -> None:
    name, numbers = "", []
    place = (data, attribute.content, attribute.end)
    if _ASKED.search(*place) is None or _SMALL_COUNTS.fullmatch(*place):
        return
    for part in read_fields(data, attribute.content, attribute.end):
        if part.number == _ATTRIBUTE_NAME:
            name = bytes(data[part.content : part.end]).decode(errors="replace")
        elif part.number in (_INT, _INTS):
            numbers += _read_numbers(data[part.content : part.end])
        elif part.number in (_GRAPH, _GRAPHS) and part.has_length:
            bodies.append(part)
    if numbers:
        node.numbers[name] = numbers


def _read_numbers(data: Sequence[int]) -> list[int]:
    """One number, or several one after the other: readers take both."""
    numbers, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            numbers.append(value - (1 << 64) if value >> 63 else value)
            value = shift = 0
    return numbers
