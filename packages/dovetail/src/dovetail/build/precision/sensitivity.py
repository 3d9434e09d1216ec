"""Which quantized layers cost most: measured on the samples of a build, and kept in FP32 until a tolerance holds.

The error of an output is the root mean square of its difference from FP32, as a share of the root mean square of the
output; for integers it is the share of elements that changed. That of a network is the largest of its outputs'.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from dovetail.build.planner import reference_program
from dovetail.build.precision.quantize import QuantizationForm
from dovetail.build.precision.quantize_plan import QuantizationPlan
from dovetail.build.precision.switches import write_switches
from dovetail.build.precision.trial import Sample, Trial, make_reference_request, run_batch
from dovetail.build.progress import Phases
from dovetail.build.request import BuildRequest
from dovetail.network.inference.shapes import ShapeInference

__all__ = ["ErrorSum", "choose_kept", "find_groups", "keep_sensitive"]

Array = npt.NDArray[Any]
Plan = Callable[[Mapping[ir.Node, str]], QuantizationPlan]
"""Plans a network, given layers that stay and why."""
Measure = Callable[[Collection[ir.Node]], float]
"""The error of the network with only these layers quantized."""

_PHASE: Final = "Find layers that 8 bits cost most"
_MOST_SAMPLES: Final = 8
"""What a choice of layers is judged by."""
_FEW_SAMPLES: Final = 3
"""What the order of layers is found with: they only have to be told apart."""
_ACTIVATIONS: Final = ("Relu", "Clip")


class ErrorSum:
    """Sums what is needed for the error of outputs over samples.

    >>> total = ErrorSum()
    >>> total.add({"y": np.array([3.0, 4.5])}, {"y": np.array([3.0, 4.0])})
    >>> total.error
    0.1
    """

    def __init__(self) -> None:
        self._off: dict[str, float] = {}
        self._all: dict[str, float] = {}
        self._floats: set[str] = set()

    def add(self, found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
        """Take the outputs of one sample; what is no array of numbers does not count."""
        for name, wanted in expected.items():
            if isinstance(wanted, np.ndarray) and wanted.dtype.kind in "fiub":
                self._add_output(name, np.asarray(found[name]), wanted)

    def _add_output(self, name: str, found: Array, wanted: Array) -> None:
        if found.shape != wanted.shape:
            self._off[name], self._all[name] = np.inf, 1.0
            return
        if wanted.dtype.kind == "f":
            self._floats.add(name)
            off, size = _sum_squares(found, wanted)
        else:
            off, size = float((found != wanted).sum()), float(wanted.size)
        self._off[name] = self._off.get(name, 0.0) + off
        self._all[name] = self._all.get(name, 0.0) + size

    @property
    def error(self) -> float:
        """The error of the output that is furthest off."""
        return max((self._share(name) for name in self._off), default=0.0)

    def _share(self, name: str) -> float:
        share = self._off[name] / self._all[name] if self._all[name] else float(self._off[name] > 0)
        return float(np.sqrt(share)) if name in self._floats else share


def _sum_squares(found: Array, wanted: Array) -> tuple[float, float]:
    """Over elements that are finite in FP32; one that no longer is makes the error infinite."""
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(b)
    off = np.where(np.isfinite(a[finite]), a[finite] - b[finite], np.inf)
    return float((off**2).sum()), float((b[finite] ** 2).sum())


def find_groups(plan: QuantizationPlan) -> list[list[ir.Node]]:
    """The quantized layers, activations together with what they are behind."""
    groups: dict[ir.Node, list[ir.Node]] = {}
    for node in (node for node in plan.layers if plan.is_quantized(node)):
        source = node.inputs[0]
        maker = None if source is None else source.producer()
        if node.op_type in _ACTIVATIONS and maker is not None and maker in groups:
            groups[maker].append(node)
        else:
            groups[node] = [node]
    return list(groups.values())


def choose_kept(
    plan: Plan, groups: Sequence[Sequence[ir.Node]], alone: Sequence[float], measure: Measure, kind: str, limit: float
) -> dict[ir.Node, str]:
    """The fewest layers, those first that cost most alone, without which the network is within a limit.

    Args:
        plan: Plans the network without some layers.
        groups: The quantized layers.
        alone: The error with each group quantized alone.
        measure: Measures a plan.
        kind: The type, for the reasons.
        limit: The error that is allowed.
    """
    order = sorted(range(len(groups)), key=lambda index: -alone[index])

    def keep(count: int) -> dict[ir.Node, str]:
        return {groups[i][0]: _explain(kind, alone[i], limit) for i in order[:count]}

    low, high = 1, len(order)
    while low < high:
        middle = (low + high) // 2
        found = plan(keep(middle))
        is_enough = measure([node for node in found.layers if found.is_quantized(node)]) <= limit
        low, high = (low, middle) if is_enough else (middle + 1, high)
    return keep(low)


def _explain(kind: str, error: float, limit: float) -> str:
    return f"{kind} here alone changes the outputs by {100 * error:.2g}%, and {100 * limit:.2g}% is allowed in all"


@dataclass(frozen=True)
class _Meter:
    """Runs a network with switches over samples."""

    instance: Any
    switches: Mapping[ir.Node, str]
    samples: Sequence[Sample]

    def measure(self, layers: Collection[ir.Node], count: int = _MOST_SAMPLES) -> float:
        chosen = set(layers)
        switches = {name: np.array(node in chosen) for node, name in self.switches.items()}
        total = ErrorSum()
        for sample in self.samples[:count]:
            _, results = run_batch(self.instance, {**sample.inputs, **switches})
            total.add(results, sample.outputs)
        return total.error


def keep_sensitive(
    request: BuildRequest,
    plan: Plan,
    form: QuantizationForm,
    trial: Trial,
    phases: Phases,
    limit: float,
) -> QuantizationPlan:
    """The plan whose outputs stay within a limit on the samples; the whole one where it already does."""
    whole = plan({})
    groups = find_groups(whole)
    if not groups:
        return whole
    network = write_switches(request.model, whole, form, trial.means)
    ShapeInference(network.model.opset_imports).infer_graph(network.model.graph)
    with reference_program(make_reference_request(request, network.model)) as instance:
        meter = _Meter(instance, network.switches, trial.samples)
        if meter.measure(network.switches) <= limit:
            return whole
        with phases.phase(_PHASE, steps=len(groups) + 1) as phase:
            alone = []
            for group in groups:
                alone.append(meter.measure(group, _FEW_SAMPLES))
                phase.step()
            kept = choose_kept(plan, groups, alone, meter.measure, form.kind, limit)
            phase.step()
    return plan(kept)
