"""Runs in fresh processes: what is asked of one, and what it answers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dovetail.plugin.check.host.calls import CallbackRaised, journal
from dovetail.plugin.check.host.descriptors import Combination
from dovetail.plugin.check.host.runs import Run
from dovetail.plugin.check.isolation.journal import FRESH_SLOT
from dovetail.plugin.check.isolation.watch import find_process_change, noting_variables
from dovetail.plugin.check.lifecycle import Life
from dovetail.plugin.check.problem import Case, InputCase

__all__ = ["FreshResult", "FreshRun", "run_fresh"]


@dataclass(frozen=True, kw_only=True)
class FreshRun:
    """What a fresh process is asked to run.

    Attributes:
        is_watched: Whether to look for changes of the process instead of giving results.
        variables: Environment variables to set, or to take away where the value is None.
    """

    fields: list[dict[str, Any]]
    problem: InputCase
    formats: Combination
    tactic: int
    case: Case
    is_watched: bool = False
    variables: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FreshResult:
    """What a fresh process answers.

    Attributes:
        outputs: The bytes of the outputs.
        shapes: The shapes of the outputs.
        raised: What a callback raised, in words.
        change: What was changed in the process, in words.
        variables: The environment variables that were read.
    """

    outputs: list[bytes] = field(default_factory=list)
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    raised: str = ""
    change: str = ""
    variables: list[str] = field(default_factory=list)

    def as_run(self, like: Run) -> Run:
        """The result as a run with the descriptors of another."""
        outputs = [np.frombuffer(raw, np.uint8) for raw in self.outputs]
        return replace(like, outputs=outputs, shapes=self.shapes)


def run_fresh(life: Life, wanted: FreshRun) -> FreshResult:
    """Run in this process, which differs from the one it was copied from in what no plugin may rely on."""
    journal().move_to(FRESH_SLOT)
    os.chdir(os.sep)
    _set_variables(wanted.variables)
    try:
        with noting_variables() as names:
            if wanted.is_watched:
                return FreshResult(change=find_process_change(life) or "")
            prepared = life.prepare(formats=wanted.formats, tactic=wanted.tactic)
            prepared.reshape(wanted.case)
            run = prepared.run(wanted.case)
    except CallbackRaised as raised:
        return FreshResult(raised=str(raised))
    return FreshResult(outputs=[raw.tobytes() for raw in run.outputs], shapes=run.shapes, variables=sorted(names))


def _set_variables(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
