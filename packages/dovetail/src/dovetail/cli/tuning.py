"""What commands that tune share: the options, and the tables of what was tried and chosen."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.cli.options import non_negative_float, positive_float
from dovetail.cli.screen import Screen, format_time

if TYPE_CHECKING:
    from dovetail.build.config import BuilderConfig
    from dovetail.plan.manifest import LayerRecord

__all__ = ["add_tuning_options", "apply_tuning_options", "show_chosen", "show_tuning", "tuning_rows"]


def add_tuning_options(parser: argparse.ArgumentParser) -> None:
    """The options of every command that times candidates."""
    parser.add_argument("--timing-cache", metavar="FILE", help="keep timings in a file, shared with other builds")
    parser.add_argument(
        "--error-on-timing-cache-miss", action="store_true", help="fail instead of timing what the cache lacks"
    )
    parser.add_argument(
        "--tactic-timeout", type=positive_float, metavar="S", help="seconds after which a tactic is given up (60)"
    )
    parser.add_argument(
        "--workspace", type=non_negative_float, metavar="MIB", help="scratch memory a step may ask for (4096)"
    )


def apply_tuning_options(args: argparse.Namespace, config: BuilderConfig) -> None:
    """Write these options into a configuration."""
    from dovetail.build.config import BuilderFlag, MemoryPoolType

    if args.error_on_timing_cache_miss:
        config.set_flag(BuilderFlag.ERROR_ON_TIMING_CACHE_MISS)
    if args.tactic_timeout is not None:
        config.tactic_timeout_s = args.tactic_timeout
    if args.workspace is not None:
        config.set_memory_pool_limit(MemoryPoolType.WORKSPACE, int(args.workspace * 2**20))
    config.timing_cache_path = args.timing_cache


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


def show_chosen(layers: Sequence[Mapping[str, Any]], screen: Screen) -> None:
    """One row for what was chosen of each table."""
    rows = [
        (layer["layer"], layer["profile"], _candidate_text(c), _tactic_text(c), format_time(c["time_us"]), c["status"])
        for layer in layers
        for c in layer["candidates"]
        if c["chosen"]
    ]
    if rows:
        screen.title("Chosen")
        screen.table(("layer", "profile", "candidate", "tactic", "time", "how"), rows, right=(1, 4))


def _candidate_text(candidate: Mapping[str, Any]) -> str:
    """What a candidate is: the formats of a plugin layer, or the name that its provider gave it."""
    return ", ".join(candidate["formats"]) or candidate["name"]


def _tactic_text(candidate: Mapping[str, Any]) -> str:
    """The tactic of a plugin layer, with its name where it has one."""
    has_name = candidate["formats"] and candidate["name"]
    return f"{candidate['tactic']} {candidate['name']}" if has_name else str(candidate["tactic"])


def _row(candidate: Mapping[str, Any]) -> tuple[object, ...]:
    return (
        "*" if candidate["chosen"] else "",
        _candidate_text(candidate),
        _tactic_text(candidate),
        format_time(candidate["time_us"]),
        candidate["status"],
        candidate["reason"] or "",
    )
