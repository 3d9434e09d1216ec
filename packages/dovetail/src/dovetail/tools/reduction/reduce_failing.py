"""Reducing a model by how it fails: find out in which way it does, record a run, shrink, and say what is left."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import onnx_ir as ir

from dovetail._unset_dims import UnsetDim, tell_unset
from dovetail.errors import DovetailError, UsageError
from dovetail.inputs.feeds import make_feeds
from dovetail.inputs.sizes import find_unset
from dovetail.inputs.specs import specs_of_model
from dovetail.loggers import ILogger, Logger
from dovetail.tools.differences import Tolerance
from dovetail.tools.recording import Recorder
from dovetail.tools.reduce import ReducePhase, ReduceResult, reduce_model
from dovetail.tools.reduction.failing import (
    CommandFailure,
    CompareFailure,
    CrashFailure,
    find_error,
    run_command,
)
from dovetail.tools.sides import DovetailSide, EvaluatorSide, OnnxRuntimeSide, Side, Source, make_reference, read_source

__all__ = ["MODES", "Check", "ReducedModel", "reduce_failing"]

MODES: Final = ("auto", "compare", "crash")


@dataclass(frozen=True, kw_only=True)
class Check:
    """A program that judges a model: see ``CommandFailure``."""

    command: Sequence[str]
    uses_shell: bool = False
    timeout_s: float = 300.0


@dataclass(frozen=True, kw_only=True)
class ReducedModel:
    """The smallest failing model, what to run it on, and how it fails."""

    result: ReduceResult
    inputs: Mapping[str, Any]
    failure: str
    unset: Sequence[UnsetDim] = ()
    """Sizes of inputs that nobody set."""

    def describe_nodes(self) -> list[dict[str, Any]]:
        """The nodes that are left, as plain data."""
        return [
            {
                "name": node.name or "",
                "op": node.op_type,
                "domain": node.domain,
                "inputs": [value.name if value is not None else "" for value in node.inputs],
                "outputs": [value.name for value in node.outputs],
            }
            for node in self.result.model.graph
        ]


def reduce_failing(
    model: Source,
    *,
    mode: str = "auto",
    check: Check | None = None,
    against: str = "onnxruntime",
    candidate: DovetailSide | None = None,
    inputs: Mapping[str, Any] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    seed: int = 0,
    tolerance: Tolerance | None = None,
    max_tests: int = 1000,
    max_seconds: float = math.inf,
    on_phase: Callable[[ReducePhase], object] | None = None,
    logger: ILogger | None = None,
) -> ReducedModel:
    """Shrink a model that fails to the smallest that fails in the same way.

    Args:
        model: A path, the bytes of a model, a ModelProto, or an onnx-ir model.
        mode: ``compare``, ``crash``, or ``auto`` for crash when it raises and compare when it does not.
        check: A program that decides instead.
        against: The reference, as in ``compare_models``.
        candidate: Dovetail with settings; the default ones without it.
        inputs: Values by name; inputs without one get random numbers.
        shapes: Shapes of dynamic inputs.
        seed: Decides the random numbers.
        tolerance: How far off is still close.
        max_tests: How many models to try at most.
        max_seconds: After how long to begin no further trial.
        on_phase: Told when a phase has ended.
        logger: Where it goes that nobody set a size; the builds of the candidate have its own.

    Raises:
        UsageError: The model does not fail in that way.
        InputError: The candidate's configuration is strict, and nobody set the size of a dimension.
    """
    if mode not in MODES:
        raise UsageError(f"there is no mode '{mode}'", where="mode", expected=f"one of {', '.join(MODES)}")
    source = read_source(model)
    side = candidate or DovetailSide()
    specs = specs_of_model(source)
    unset = find_unset(specs, given=inputs, shapes=shapes)
    tell_unset(unset, logger or Logger(), strict=side.config is not None and side.config.strict)
    feeds = make_feeds(specs, given=inputs, shapes=shapes, seed=seed)
    reference = make_reference(against, side)
    recorder = Recorder(source, feeds, _recording_sides(reference, side), seed=seed)
    if check is not None:
        failing, told = _find_command_failure(check, source, recorder)
    else:
        failing, told = _find_failure(mode, source, side, reference, recorder, tolerance or Tolerance())
    result = reduce_model(
        source, failing, record=recorder, max_tests=max_tests, max_seconds=max_seconds, on_phase=on_phase
    )
    return ReducedModel(result=result, inputs=recorder.feeds_for(result.model), failure=told, unset=unset)


def _recording_sides(reference: Side, candidate: DovetailSide) -> list[Side]:
    """Who may tell what tensors hold; when the reference cannot, whoever can."""
    others: list[Side] = [OnnxRuntimeSide(), EvaluatorSide(), make_reference("cpu", candidate)]
    return [reference, *(side for side in others if side.name != reference.name)]


def _find_failure(
    mode: str, model: ir.Model, candidate: DovetailSide, reference: Side, recorder: Recorder, tolerance: Tolerance
) -> tuple[Callable[[ir.Model], bool], str]:
    # A call that can never be right is the caller's mistake, and nothing to look for in smaller models.
    signature = find_error(candidate, model, recorder, passes_on=(UsageError,)) if mode != "compare" else None
    if signature is not None:
        part = replace(candidate, is_part=True)
        return CrashFailure(candidate=part, recorder=recorder, signature=signature), f"it raises {signature}"
    if mode == "crash":
        raise UsageError("building and running the model raises nothing", where="reduce", fix="try the mode compare")
    failing = CompareFailure(candidate=candidate, reference=reference, recorder=recorder, tolerance=tolerance)
    if not failing(model):
        _explain_agreement(model, failing)
    failing = replace(failing, candidate=replace(candidate, is_part=True))
    return failing, f"it differs from {reference.name}"


def _explain_agreement(model: ir.Model, failing: CompareFailure) -> None:
    """Say why a model does not count as differing: one side does not run it, or there is no difference."""
    hollow = [f"output '{found.name}': {found.reason}" for found in failing.compare(model) if not found.is_verified]
    raise UsageError(
        f"the model does not fail: it raises nothing and agrees with {failing.reference.name}",
        where="reduce",
        got="; ".join(hollow) or None,
        fix="give the inputs, shapes or tolerance with which it fails",
    )


def _find_command_failure(check: Check, model: ir.Model, recorder: Recorder) -> tuple[Callable[[ir.Model], bool], str]:
    if not check.command:
        raise UsageError("the command is empty", where="reduce")
    failure = CommandFailure(
        command=check.command,
        recorder=recorder,
        exit_code=0,
        uses_shell=check.uses_shell,
        timeout_s=check.timeout_s,
    )
    code = run_command(failure, model)
    if code is None:
        raise DovetailError(
            "the command does not end", where=check.command[0], expected=f"an end within {check.timeout_s:g} s"
        )
    if code == 0:
        raise UsageError("the model does not fail: the command ends with code 0", where=check.command[0])
    told = f"the command ends with code {code}"
    failing = CommandFailure(
        command=check.command,
        recorder=recorder,
        exit_code=code,
        uses_shell=check.uses_shell,
        timeout_s=check.timeout_s,
    )
    return failing, told
