"""Nodes of a stored partition that ONNX Runtime does not refuse and that end the process when they run.

A model is checked when it is imported, with the onnx package. A plan runs without that package and may come from
anywhere, so the same forms are looked for in the bytes of its partitions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from dovetail.errors import PlanCorruptError
from dovetail.protobuf import Field, MalformedMessageError, read_fields
from dovetail.provider.schemas.node_limits import DIVISORS, FIRST_VARIADIC, FORM_ATTRIBUTES, NodeForm, find_bad_form

__all__ = ["find_fragile_node"]

_MODEL_PARTS: Final = {7: "graph", 25: "function"}
_NODE_LISTS: Final = {"graph": 1, "function": 7}
_INPUT, _OUTPUT, _OP, _ATTRIBUTE = 1, 2, 4, 5
_ATTRIBUTE_NAME, _INT, _GRAPH, _INTS, _GRAPHS = 1, 3, 6, 8, 11
_ASKED: Final = re.compile(
    b"|".join((b"\\x0a\\x00", b"branch", b"body", *(name.encode() for name in (*DIVISORS, *FORM_ATTRIBUTES))))
)
"""What a node has in its bytes that is to be looked at: an absent input, a body, or one of these attributes."""
_SMALL_COUNTS: Final = re.compile(
    b"\\x0a.(?:" + b"|".join(name.encode() for name in DIVISORS) + b")(?:[\\x18\\x40][\\x01-\\x7f])+\\xa0\\x01.",
    re.DOTALL,
)
"""Counts as nearly every node has them, from 1 to 127: nothing can be wrong with those, and they need not be read."""
_MAX_DEPTH: Final = 100
"""How deep a reader of ONNX follows messages inside messages."""


@dataclass(kw_only=True)
class _Node(NodeForm):
    """What is looked at of a node."""

    absent: int | None = None
    """The last input that has no name."""


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
    if node.absent is not None and node.absent >= FIRST_VARIADIC.get(node.op, node.num_inputs):
        return f"input {node.absent} is absent"
    return next(find_bad_form(node), None)


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
            if part.end == part.content:
                found.absent = found.num_inputs
            found.num_inputs += 1
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
