"""Gives a network the types that were asked for: runs it in FP32, decides for each layer, and changes the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from dovetail.build.precision.decide import FLOAT_IR_TYPES, Evidence, FloatDecision, decide_float_types
from dovetail.build.precision.effect import check_names, record_floats, require_effect
from dovetail.build.precision.float_types import convert_float_types
from dovetail.build.precision.options import PrecisionOptions
from dovetail.build.precision.support import ProviderQuestions, find_plugin_ports
from dovetail.build.precision.trial import Sample, Trial, run_trial
from dovetail.build.progress import Phases
from dovetail.build.request import BuildRequest
from dovetail.errors import DovetailError
from dovetail.loggers import Severity
from dovetail.network.inference.shapes import ShapeInference
from dovetail.passes.base import run_passes
from dovetail.passes.dead_code import DeadCode
from dovetail.plan.manifest import PrecisionRecord
from dovetail.provider.interfaces import Provider
from dovetail.provider.options import Providers

__all__ = ["PrecisionResult", "apply_precision"]


@dataclass(kw_only=True)
class PrecisionResult:
    """What was decided, and samples of the FP32 network to compare with."""

    records: list[PrecisionRecord] = field(default_factory=list)
    samples: Sequence[Sample] = ()
    is_made_up: bool = True
    """Whether the inputs of the samples were made up."""


def apply_precision(request: BuildRequest, options: PrecisionOptions, phases: Phases) -> PrecisionResult:
    """Change the network of a request in place.

    Raises:
        UsageError: The options name what is not in the network.
        BuildError: A type that was asked for can have no effect.
    """
    check_names(request.model.graph, options)
    with phases.phase("Choose types", steps=3) as phase:
        _infer(request.model)
        trial = _try(request, options, phases)
        phase.step()
        work = _Work(request, options, trial)
        work.choose_floats()
        phase.step()
        run_passes(request.model, [DeadCode()])
        _infer(request.model)
        phase.step()
    samples = trial.samples if trial is not None and options.compare else ()
    return PrecisionResult(records=work.records, samples=samples, is_made_up=trial is None or trial.is_made_up)


def _infer(model: ir.Model) -> None:
    ShapeInference(model.opset_imports).infer_graph(model.graph)


def _try(request: BuildRequest, options: PrecisionOptions, phases: Phases) -> Trial | None:
    """The run in FP32; made-up inputs may not suit the network, which is then told."""
    if not (options.float_type == "fp16" or options.compare or options.calibration is not None):
        return None
    try:
        return run_trial(request, phases, options.calibration, with_entropy=False)
    except DovetailError as error:
        if options.calibration is not None:
            raise
        text = f"the network was not run in fp32, so ranges are not checked and nothing is compared: {error}"
        request.logger.log(Severity.WARNING, f"{text}\n  fix: give calibration data, or shapes that suit the network")
        return None


class _Work:
    """One network on its way to other types."""

    def __init__(self, request: BuildRequest, options: PrecisionOptions, trial: Trial | None) -> None:
        self._model, self._options, self._trial = request.model, options, trial
        self._keep = request.refittable
        self._providers = _open_providers(request)
        self._held: dict[ir.Node, str] = {}
        self.records: list[PrecisionRecord] = []

    def choose_floats(self) -> None:
        """Decide on the float type of each layer, and write casts."""
        kind = self._options.float_type
        io_types = {name: FLOAT_IR_TYPES[text] for name, text in self._options.io_types.items()}
        decisions: Mapping[int, FloatDecision] = {}
        if kind is not None:
            decisions = self._decide()
            rows = record_floats(decisions, kind)
            require_effect(kind, rows, is_for="layer with fp32 tensors")
            known = {record.layer for record in self.records}
            self.records += [row for row in rows if row.layer not in known]
        convert_float_types(self._model, decisions, FLOAT_IR_TYPES[kind or "fp16"], io_types, self._keep)

    def _decide(self) -> dict[int, FloatDecision]:
        """Decisions that every provider agrees with; each round keeps more layers, so that there is a last one."""
        dtype = FLOAT_IR_TYPES[self._options.float_type or "fp16"]
        evidence = Evidence(
            ranges={} if self._trial is None else self._trial.ranges,
            held={index: self._held[node] for index, node in enumerate(self._model.graph) if node in self._held},
            plugins=find_plugin_ports(self._model.graph, dtype),
        )
        questions = ProviderQuestions(self._model, self._providers)
        while True:
            decisions = decide_float_types(self._model, self._options, evidence)
            refused = questions.find_refusals(self._model, decisions, dtype)
            if not refused:
                return decisions
            evidence = replace(evidence, refused={**evidence.refused, **refused})


def _open_providers(request: BuildRequest) -> list[Provider]:
    found = Providers(request.config.provider_options)
    names = [*(name for name in dict.fromkeys(request.providers) if name != "cpu"), "cpu"]
    return [found[name] for name in names]
