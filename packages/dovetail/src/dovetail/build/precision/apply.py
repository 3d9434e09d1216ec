"""Gives a network the types that were asked for: runs it in FP32, decides for each layer, and changes the network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import onnx_ir as ir

from dovetail.build.calibrate.calibration_cache import Range
from dovetail.build.precision.decide import FLOAT_IR_TYPES, FloatDecision, TypeEvidence, decide_float_types, find_kept
from dovetail.build.precision.effect import check_names, make_record, record_floats, require_effect
from dovetail.build.precision.float_types import convert_float_types
from dovetail.build.precision.options import PrecisionOptions
from dovetail.build.precision.quantize import OPSETS, QuantizationForm, make_probe, write_quantization
from dovetail.build.precision.quantize_plan import QuantizationPlan, plan_quantization
from dovetail.build.precision.ranges import Calibrated, calibrate
from dovetail.build.precision.rules import MOVING
from dovetail.build.precision.sensitivity import keep_sensitive
from dovetail.build.precision.support import ProviderQuestions, find_plugin_ports
from dovetail.build.precision.trial import Sample, Trial, run_trial
from dovetail.build.precision.weights import DOMAIN, plan_weights, write_weights
from dovetail.build.progress import Phases
from dovetail.build.request import BuildRequest
from dovetail.errors import BuildError, DovetailError
from dovetail.loggers import Severity
from dovetail.network.inference.shapes import ShapeInference
from dovetail.network.plugins import entry_of
from dovetail.passes import fusion_passes
from dovetail.passes.base import run_passes
from dovetail.passes.dead_code import DeadCode
from dovetail.passes.opsets import explain_opset, model_opset, raise_opset
from dovetail.plan.manifest import PrecisionRecord
from dovetail.provider.host import saturates_bytes
from dovetail.provider.interfaces import Provider
from dovetail.provider.options import Providers

__all__ = ["PrecisionResult", "apply_precision"]

_TUNED: Final = "the tuner chooses the types of plugin layers"
_NORMALIZATIONS: Final = ("layer_normalization", "rms_normalization")
QUANTIZES: Final = "it quantizes"
WEIGHT_STEPS: Final = 127
SAFE_WEIGHT_STEPS: Final = 63
"""Weights of seven bits: two products of bytes then fit in 16 bits, which is where some processors add them."""


@dataclass(kw_only=True)
class PrecisionResult:
    """What was decided, and samples of the FP32 network to compare with."""

    records: list[PrecisionRecord] = field(default_factory=list)
    samples: Sequence[Sample] = ()
    is_made_up: bool = True
    """Whether the inputs of the samples were made up."""


def apply_precision(
    request: BuildRequest, options: PrecisionOptions, phases: Phases, *, is_weak: bool = False
) -> PrecisionResult:
    """Change the network of a request in place.

    Args:
        request: What is built.
        options: What was asked for.
        phases: Told of the work.
        is_weak: Whether the types are only allowed, by flags of a weakly typed network: one that no layer can have is
            no error then, plugin layers are left to the tuner, and ranges are those of the request.

    Raises:
        UsageError: The options name what is not in the network.
        BuildError: A type that was asked for can have no effect.
    """
    if not is_weak:
        check_names(request.model.graph, options)
    with phases.phase("Choose types", steps=3) as phase:
        _infer(request.model)
        _gather_normalizations(request, options)
        ranges, trial = _observe(request, options, phases, is_weak=is_weak)
        phase.step()
        work = _TypeChanges(request, options, ranges, trial, phases, is_weak=is_weak)
        work.choose_weights()
        work.choose_quantized()
        work.choose_floats()
        phase.step()
        run_passes(request.model, [DeadCode()])
        _infer(request.model)
        phase.step()
    samples = trial.samples if trial is not None and options.compare else ()
    return PrecisionResult(records=work.records, samples=samples, is_made_up=trial is None or trial.is_made_up)


def _infer(model: ir.Model) -> None:
    ShapeInference(model.opset_imports).infer_graph(model.graph)


def _gather_normalizations(request: BuildRequest, options: PrecisionOptions) -> None:
    """Make single operators of normalizations, whose kernels sum in FP32 whatever the type of their tensors is."""
    if options.float_type is None:
        return
    providers = _open_providers(request)

    def accepts(op: str, domain: str, opset: int) -> bool:
        return any(provider.kernels.find(op, domain, opset) is not None for provider in providers)

    passes = fusion_passes(
        keep=request.refittable,
        accepts=accepts,
        within=lambda node: not find_kept(node, options),
        off=request.config.passes_off,
    )
    run_passes(request.model, [each for each in passes if each.name in _NORMALIZATIONS])


def _observe(request: BuildRequest, options: PrecisionOptions, phases: Phases, *, is_weak: bool) -> Calibrated:
    """The ranges of tensors, and the run in FP32 where there was one."""
    if is_weak and options.quantized:
        return dict(request.ranges), None
    ranges, trial = calibrate(request, options, phases) if options.quantized else ({}, None)
    trial = trial or _try(request, options, phases)
    return ranges or ({} if trial is None else trial.ranges), trial


def _try(request: BuildRequest, options: PrecisionOptions, phases: Phases) -> Trial | None:
    """The run in FP32; made-up inputs may not suit the network, which is then told."""
    if not (options.float_type == "fp16" or options.compare or options.calibration is not None):
        return None
    try:
        return run_trial(request, phases, options.calibration)
    except DovetailError as error:
        if options.calibration is not None:
            raise
        text = f"the network was not run in fp32, so ranges are not checked and nothing is compared: {error}"
        request.logger.log(Severity.WARNING, f"{text}\n  fix: give calibration data, or shapes that suit the network")
        return None


class _TypeChanges:
    """One network on its way to other types."""

    def __init__(
        self,
        request: BuildRequest,
        options: PrecisionOptions,
        ranges: Mapping[str, Range | None],
        trial: Trial | None,
        phases: Phases,
        *,
        is_weak: bool,
    ) -> None:
        self._request, self._model, self._options, self._ranges = request, request.model, options, ranges
        self._trial, self._phases = trial, phases
        self._keep = request.refittable
        self._providers = _open_providers(request)
        self._is_weak = is_weak
        self._held: dict[ir.Node, str] = {}
        self.records: list[PrecisionRecord] = []

    def choose_weights(self) -> None:
        """Pack the weights of matrix products, where that was asked for."""
        if self._options.weights is None:
            return
        questions = ProviderQuestions(self._model, self._providers)
        kind = f"{self._options.weights} weights"
        self._model.opset_imports.setdefault(DOMAIN, 1)
        plan = plan_weights(self._model.graph, self._options, questions.refuse_instead, self._keep)
        rows = [make_record(node, "fp32" if reason else kind, reason) for node, reason in plan.items()]
        require_effect(kind, rows, is_for="matrix product with constant weights")
        write_weights(self._model, [node for node, reason in plan.items() if not reason], self._options)
        self.records += rows if self._options.float_type is None else [row for row in rows if row.type == kind]

    def choose_quantized(self) -> None:
        """Quantize products and convolutions, where that was asked for."""
        kind = self._options.quantized
        if kind is None:
            return
        self._raise_opset(OPSETS[kind], kind)
        form = self._choose_form(kind)
        plan = self._plan_quantized(form)
        rows = [make_record(node, "fp32" if reason else kind, reason) for node, reason in plan.layers.items()]
        if not self._is_weak:
            require_effect(kind, rows, is_for="convolution or matrix product")
        before = set(self._model.graph)
        write_quantization(self._model, plan, form, {} if self._trial is None else self._trial.means)
        added = set(self._model.graph) - before
        self._held = {node: kind for node, reason in plan.layers.items() if not reason}
        self._held |= dict.fromkeys(added, QUANTIZES)
        self.records += rows if self._options.float_type is None else [row for row in rows if row.type == kind]

    def _choose_form(self, kind: str) -> QuantizationForm:
        is_library = any(p.memory.is_host and p.id != "cpu" for p in self._providers)
        steps = SAFE_WEIGHT_STEPS if is_library and saturates_bytes() else WEIGHT_STEPS
        return QuantizationForm(kind=kind, weight_steps=steps, is_unsigned=is_library)

    def _plan_quantized(self, form: QuantizationForm) -> QuantizationPlan:
        """What is quantized, without the layers that cost more than is allowed."""
        questions, graph = ProviderQuestions(self._model, self._providers), self._model.graph

        def refuse(node: ir.Node) -> str:
            return questions.refuse_beside(node, make_probe(node.outputs[0], form.kind))

        def plan(kept: Mapping[ir.Node, str]) -> QuantizationPlan:
            return plan_quantization(graph, self._options, self._ranges, refuse, self._keep, kept)

        limit = self._options.tolerance
        if self._trial is None or self._trial.is_made_up or limit == math.inf:
            return plan({})
        return keep_sensitive(self._request, plan, form, self._trial, self._phases, limit)

    def _raise_opset(self, version: int, kind: str) -> None:
        if not raise_opset(self._model, version):
            raise BuildError(
                f"{kind} needs operators of opset {version}: {explain_opset(self._model, version)}",
                where="precision",
                got=f"opset {model_opset(self._model)}",
                fix="export the model again with a higher opset",
            )

    def choose_floats(self) -> None:
        """Decide on the float type of each layer, and write casts."""
        kind = self._options.float_type
        io_types = {name: FLOAT_IR_TYPES[text] for name, text in self._options.io_types.items()}
        decisions: Mapping[int, FloatDecision] = {}
        if kind is not None:
            decisions = self._decide()
            rows = [row for row in record_floats(decisions, kind) if row.reason != QUANTIZES]
            if not self._is_weak:
                self._require_floats(kind, rows)
            known = {record.layer for record in self.records}
            self.records += [row for row in rows if row.layer not in known]
        convert_float_types(self._model, decisions, FLOAT_IR_TYPES[kind or "fp16"], io_types, self._keep)

    def _require_floats(self, kind: str, rows: Sequence[PrecisionRecord]) -> None:
        """Check that the float type has an effect, or warn where quantization leaves no layer to it."""
        computing, quantized = [row for row in rows if row.op not in MOVING], self._options.quantized
        if computing and all(row.reason == quantized for row in computing):
            what = f"{kind} has no effect: every layer that computes is quantized to {quantized}"
            self._request.logger.log(Severity.WARNING, what)
        else:
            require_effect(kind, rows, is_for="layer with fp32 tensors")

    def _find_held(self, node: ir.Node) -> str:
        is_tuned = self._is_weak and entry_of(node) is not None
        return _TUNED if is_tuned else self._held.get(node, "")

    def _decide(self) -> dict[int, FloatDecision]:
        """Decisions that every provider agrees with; each round keeps more layers, so that there is a last one."""
        dtype = FLOAT_IR_TYPES[self._options.float_type or "fp16"]
        evidence = TypeEvidence(
            ranges=self._ranges,
            held={index: why for index, node in enumerate(self._model.graph) if (why := self._find_held(node))},
            plugins={} if self._is_weak else find_plugin_ports(self._model.graph, dtype),
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
