"""The tuner's table, as ``build --verbose`` and ``inspect --tuning`` show it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.cli.screen import Screen, format_time

if TYPE_CHECKING:
    from dovetail.plan.manifest import LayerRecord

__all__ = ["candidate_text", "show_tuning", "tactic_text", "tuning_rows"]


def tuning_rows(tables: Iterable[LayerRecord]) -> list[dict[str, Any]]:
    """The tables of a manifest as plain data."""
    from dovetail.plan.inspect import describe_table

    return [describe_table(table) for table in tables]


def show_tuning(layers: Sequence[Mapping[str, Any]], screen: Screen) -> None:
    """One table a layer and profile; the chosen row is marked."""
    if not layers:
        screen.title("Tuning")
        screen.line("nothing was tuned: no layer of this plan could be run in more than one way")
    for layer in layers:
        screen.title(f"Tuning of '{layer['layer']}', profile {layer['profile']}")
        rows = [_row(candidate) for candidate in layer["candidates"]]
        screen.table(("", "candidate", "tactic", "time", "status", "reason"), rows, right=(3,), prose=(5,))


def candidate_text(candidate: Mapping[str, Any]) -> str:
    """What a candidate is: the formats of a plugin layer, or the name that its provider gave it."""
    return ", ".join(candidate["formats"]) or candidate["name"]


def tactic_text(candidate: Mapping[str, Any]) -> str:
    """The tactic of a plugin layer, with its name where it has one."""
    has_name = candidate["formats"] and candidate["name"]
    return f"{candidate['tactic']} {candidate['name']}" if has_name else str(candidate["tactic"])


def _row(candidate: Mapping[str, Any]) -> tuple[object, ...]:
    return (
        "*" if candidate["chosen"] else "",
        candidate_text(candidate),
        tactic_text(candidate),
        format_time(candidate["time_us"]),
        candidate["status"],
        candidate["reason"] or "",
    )
