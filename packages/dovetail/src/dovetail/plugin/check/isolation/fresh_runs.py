"""Runs in fresh processes: what is asked of one, and what it answers."""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dovetail.plugin.check.cases.problem import Case, InputCase
from dovetail.plugin.check.host.calls import CallbackRaised, journal
from dovetail.plugin.check.host.descriptors import Combination
from dovetail.plugin.check.host.runs import Run
from dovetail.plugin.check.isolation.journal import FRESH_SLOT
from dovetail.plugin.check.isolation.stale_runs import prepare_orphan, run_guarded
from dovetail.plugin.check.isolation.watch import find_process_change, noting_variables
from dovetail.plugin.check.lifecycle import Life, Prepared
from dovetail.plugin.check.plugin_object import Specimen
from dovetail.plugin.fields import PluginFieldCollection, decode_fields
from dovetail.rules import Broken
from dovetail.types import TensorRTPhase

__all__ = ["FreshResult", "FreshRun", "run_fresh"]

Create = Callable[[TensorRTPhase, PluginFieldCollection], Specimen]


@dataclass(frozen=True, kw_only=True)
class FreshRun:
    """Request for a run in a fresh process.

    Attributes:
        is_watched: Whether to look for changes of the process instead of giving results.
        is_protected: Whether the inputs lie in memory that cannot be written; a write ends the process.
        is_on_device: Whether it runs on the device that was offered.
        stored: The fields of a plan to make a runtime-phase object from, instead of building one.
        workspace_bytes: The workspace of such an object, which is never asked.
        variables: Environment variables to set, or to take away where the value is None.
        guarded: Arguments of callbacks to which access is withdrawn when the callback has returned, by their labels;
            None for a run without such memory.
        orphaned: The callback, ``clone`` or ``attach_to_context``, whose result runs after the original is destroyed.
        keeps_original: Whether the original is left, for comparison.
    """

    fields: list[dict[str, Any]]
    problem: InputCase
    formats: Combination
    tactic: int
    case: Case
    is_watched: bool = False
    is_protected: bool = False
    is_on_device: bool = False
    stored: list[dict[str, Any]] | None = None
    workspace_bytes: int = 0
    variables: dict[str, str | None] = field(default_factory=dict)
    guarded: list[str] | None = None
    orphaned: str = ""
    keeps_original: bool = False


@dataclass(frozen=True, kw_only=True)
class FreshResult:
    """Result of a run in a fresh process.

    Attributes:
        outputs: The bytes of the outputs.
        shapes: The shapes of the outputs.
        raised: What a callback raised, in words.
        change: What was changed in the process, in words.
        variables: The environment variables that were read.
        labels: The arguments that callbacks of C++ plugins got.
    """

    outputs: list[bytes] = field(default_factory=list)
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    raised: str = ""
    change: str = ""
    variables: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)

    def as_run(self, like: Run) -> Run:
        """The result as a run with the descriptors of another."""
        outputs = [np.frombuffer(raw, np.uint8) for raw in self.outputs]
        return replace(like, outputs=outputs, shapes=self.shapes)


def run_fresh(life: Life, wanted: FreshRun, create: Create) -> FreshResult:
    """Run in this process, which differs from the one it was copied from in what no plugin may rely on."""
    journal().move_to(FRESH_SLOT)
    os.chdir(os.sep)
    _set_variables(wanted.variables)
    try:
        with noting_variables() as names:
            if wanted.is_watched:
                return FreshResult(change=find_process_change(life) or "")
            if wanted.guarded is not None:
                return FreshResult(labels=run_guarded(life, wanted, lambda: _make(life, wanted, create)))
            prepared = prepare_orphan(life, wanted) if wanted.orphaned else _prepare(life, wanted, create)
            prepared.reshape(wanted.case)
            run = _run_protected(prepared, wanted.case) if wanted.is_protected else prepared.run(wanted.case)
    except (Broken, CallbackRaised) as raised:
        return FreshResult(raised=str(raised))
    return FreshResult(outputs=[raw.tobytes() for raw in run.outputs], shapes=run.shapes, variables=sorted(names))


def _prepare(life: Life, wanted: FreshRun, create: Create) -> Prepared:
    """Prepare a built object, or one from stored fields, before anything else of the plugin runs."""
    if wanted.stored is None:
        return life.prepare(formats=wanted.formats, tactic=wanted.tactic)
    specimen = _make(life, wanted, create)
    life.tell(specimen.runtime, "set_tactic", wanted.tactic)
    return Prepared(life, life.attach(specimen), wanted.formats, wanted.tactic, wanted.workspace_bytes)


def _make(life: Life, wanted: FreshRun, create: Create) -> Specimen:
    """Create an object in the phase that is wanted."""
    return life.make() if wanted.stored is None else create(TensorRTPhase.RUNTIME, decode_fields(wanted.stored))


def _run_protected(prepared: Prepared, case: Case) -> Run:
    """Run with inputs that cannot be written; those that an output is aliased to can."""
    bench = prepared.bench(case)
    inputs = [buffer for index, buffer in enumerate(bench.inputs) if index not in bench.aliases]
    faulthandler.disable()  # the end of this process is an answer and no report
    with ExitStack() as stack:
        for buffer in inputs:
            stack.enter_context(buffer.read_only())
        return prepared.run_bench(bench, case)


def _set_variables(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
