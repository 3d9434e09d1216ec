"""Gathering what is wrong with a model, so that one error tells all of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import onnx_ir as ir

from dovetail.errors import DovetailError, ModelError

__all__ = ["ImportProblem", "Problems", "describe_node", "mark_bodies", "mark_function", "mark_place", "quote"]

_SHOWN: Final = 40
_MAX_NAMES: Final = 2000
"""A hostile model must not make a message without end."""
_BODY_KEY: Final = "dovetail.body"
_FUNCTION_KEY: Final = "dovetail.function"


@dataclass(frozen=True, kw_only=True)
class ImportProblem:
    """One thing that is wrong, and the class of error it would be alone."""

    kind: type[DovetailError]
    what: str
    where: str
    fix: str | None = None
    also: tuple[str, ...] = ()
    """Further places where the same is wrong."""

    @property
    def text(self) -> str:
        """What is wrong, with all the places but the first."""
        names = list(self.also[:_MAX_NAMES])
        if len(self.also) > _MAX_NAMES:
            names.append(f"and {len(self.also) - _MAX_NAMES} more")
        return f"{self.what}; nodes: {'; '.join(names)}" if names else self.what

    @property
    def parts(self) -> list[DovetailError]:
        """One error for each place."""
        return [self.kind(self.what, where=place, fix=self.fix) for place in (self.where, *self.also)]


class Problems:
    """Problems in the order they were found.

    >>> problems = Problems()
    >>> problems.add("no such input", where="node 'a'"); problems.raise_if_any()
    Traceback (most recent call last):
    dovetail.errors.ModelError: node 'a': no such input
    """

    def __init__(self) -> None:
        self._found: list[ImportProblem] = []

    def __len__(self) -> int:
        return len(self._found)

    def add(
        self,
        what: str,
        *,
        where: str,
        kind: type[DovetailError] = ModelError,
        fix: str | None = None,
        also: Sequence[str] = (),
    ) -> None:
        """Note one problem, which other places may have too."""
        self._found.append(ImportProblem(kind=kind, what=what, where=where, fix=fix, also=tuple(also)))

    def add_error(self, error: DovetailError, *, where: str) -> None:
        """Note an error that was raised about one part."""
        facts = [f"expected {error.expected}"] if error.expected is not None else []
        facts += [f"got {error.got}"] if error.got is not None else []
        place = f"{where}, {error.where}" if error.where and error.where != where else where
        self.add("; ".join([error.what, *facts]), where=place, kind=type(error), fix=error.fix)

    def raise_if_any(self) -> None:
        """Raise one error about everything; its class is the problems' own where they agree."""
        if not self._found:
            return
        first = self._found[0]
        is_one = len(self._found) == 1
        error = first.kind(first.text, where=first.where, fix=first.fix) if is_one else self._gather()
        parts = [part for problem in self._found for part in problem.parts]
        error.parts = tuple(parts) if len(parts) > 1 else ()
        raise error

    def _gather(self) -> DovetailError:
        kinds = {problem.kind for problem in self._found}
        kind = kinds.pop() if len(kinds) == 1 else ModelError
        lines = [f"  {problem.where}: {problem.text}{_fix(problem)}" for problem in self._found[:_SHOWN]]
        if len(self._found) > _SHOWN:
            lines.append(f"  and {len(self._found) - _SHOWN} more")
        return kind(f"{len(self._found)} problems:\n" + "\n".join(lines), where="model")


def _fix(problem: ImportProblem) -> str:
    return f"\n    fix: {problem.fix}" if problem.fix else ""


def quote(text: object, limit: int = 60) -> str:
    """A name from a file in quotes, with nothing in it that a terminal would obey."""
    name = str(text)
    return repr(name if len(name) <= limit else name[: limit - 3] + "...")


def describe_node(node: ir.Node, opset: int | None) -> str:
    """How messages name a node: its name, operator and opset version, and where it is unless that is the graph."""
    op = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    name = f"node {quote(node.name or '')} ({quote(op)[1:-1]}, opset {'unknown' if opset is None else opset})"
    places = [node.meta[key] for key in (_BODY_KEY, _FUNCTION_KEY) if key in node.meta]
    return ", ".join([name, *(f"in {place}" for place in places)])


def mark_function(node: ir.Node, function: str) -> None:
    """Note which function a node comes from; the copies that expansion makes keep it, and the innermost one counts."""
    node.meta.setdefault(_FUNCTION_KEY, f"function {quote(function)}")


def mark_place(node: ir.Node, place: str) -> None:
    """Note which body or function a node is in."""
    node.meta[_BODY_KEY] = place


def mark_bodies(graph: ir.Graph, place: str = "") -> None:
    """Note of every node in a body which body it is in; onnx-ir has no way up from a body to its node."""
    for node in graph:
        if place:
            mark_place(node, place)
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
                inner = f"{quote(attribute.name)[1:-1]} of node {quote(node.name or node.op_type)}"
                mark_bodies(attribute.as_graph(), f"{inner}, {place}" if place else inner)
