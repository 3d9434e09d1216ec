"""A model for people: what it is, and what would run it where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from dovetail.cli.answers import Document
from dovetail.cli.failures import advise
from dovetail.cli.screen import Screen, format_bytes

__all__ = ["show_model", "show_nodes"]

_SHOWN: Final = 30
"""Operators and refusals that a summary has; ``--json`` has all."""


def show_model(document: Document, screen: Screen) -> None:
    """Write the summary."""
    weights, opsets = document["weights"], document["opsets"]
    count = sum(operator["count"] for operator in document["operators"])
    size = format_bytes(weights["size_bytes"])
    screen.facts(
        [
            ("model", f"{document['path']}, {format_bytes(document['size_bytes'])}, graph '{document['name']}'"),
            *((("made by", document["producer"]),) if document["producer"] else ()),
            ("opsets", f"{', '.join(f'{domain} {opsets[domain]}' for domain in opsets)}; IR {document['ir_version']}"),
            ("weights", f"{weights['count']} tensor(s), {weights['parameters']} parameters, {size}"),
            ("nodes", f"{count}, of {len(document['operators'])} operators{_functions_text(document)}"),
        ]
    )
    screen.title("Tensors")
    rows = [
        (side, value["name"], value["type"] or "?", _dims_text(value["dims"]))
        for side in ("input", "output")
        for value in document[f"{side}s"]
    ]
    screen.table(("", "name", "type", "shape"), rows)
    _show_operators(document, screen)
    _show_placement(document, screen)


def _functions_text(document: Document) -> str:
    return f", and {document['num_functions']} functions" if document["num_functions"] else ""


def _dims_text(dims: Iterable[Any] | None) -> str:
    return "?" if dims is None else f"({', '.join('?' if dim is None else str(dim) for dim in dims)})"


def _show_operators(document: Document, screen: Screen) -> None:
    screen.title("Operators")
    rows = [
        (operator["op"], operator["domain"] or "ai.onnx", operator["count"], "function" * operator["is_function"])
        for operator in document["operators"]
    ]
    screen.table(("operator", "domain", "count", ""), rows[:_SHOWN], right=(2,))
    _tell_more(len(rows), "operators", screen)


def _show_placement(document: Document, screen: Screen) -> None:
    """Who would run how many nodes of the imported model, and who refuses what."""
    screen.title("What would run where")
    rows = [
        (each["name"], each["num_runs"], f"{each['num_takes']} of {each['num_nodes']}")
        for each in document["providers"]
    ]
    rows += [("plugins", document["num_plugins"], "-")] if document["num_plugins"] else []
    nobody = sum(node["provider"] is None for node in document["placement"])
    rows += [("nobody", nobody, "-")] if nobody else []
    screen.table(("back end", "would run", "could run"), rows, right=(1, 2))
    refusals = [
        (each["name"], refusal["op"], refusal["count"], refusal["reason"])
        for each in document["providers"]
        for refusal in each["refusals"]
    ]
    if refusals:
        screen.title("Refused")
        screen.table(("back end", "operator", "count", "reason"), refusals[:_SHOWN], right=(2,), prose=(3,))
        _tell_more(len(refusals), "refusals", screen)
    if document["problem"] is not None:
        screen.title("It cannot be built as it is")
        screen.facts(("", line.strip()) for line in advise(document["problem"]).splitlines())


def _tell_more(count: int, what: str, screen: Screen) -> None:
    if count > _SHOWN:
        screen.line(f"... and {count - _SHOWN} more {what}; --json has all")


def show_nodes(placement: Iterable[Mapping[str, Any]], screen: Screen) -> None:
    """Write every node with who would run it and why."""
    screen.title("Nodes")
    rows = [(node["name"], node["op"], node["provider"] or "nobody", node["reason"]) for node in placement]
    screen.table(("node", "operator", "back end", "why"), rows, prose=(3,))
