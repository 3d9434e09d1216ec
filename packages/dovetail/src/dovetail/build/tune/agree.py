"""Whether candidates that should compute the same thing do: pure comparison of their outputs.

Candidates may differ in type, and then they differ in rounding, which must not be mistaken for a wrong result:

* All start from the same numbers. The tuner draws inputs that every proposed type holds, so quantizing an input adds no
  difference of its own. (FP8 and a scaled INT8 share no grid; their common tolerance is FP8's, which covers it.)
* Two outputs may differ by the tolerance of the looser type, inputs counted too, because a kernel computes in the
  precision of what it reads. It is relative to the largest magnitude in the output: rounding errors grow with the
  terms of a sum, not with what is left after they cancel. An INT8 output may be off by one step of its scale: half for
  rounding the result, half for rounding before it.
* A narrow type saturates, so the wide result is cut to what the narrow one can hold first; INT8 cannot hold NaN, and
  nothing is asked of it there.
* The widest types settle among themselves what is right, and the others are held against that: FP32 is what the
  network says, and a majority of narrow variants with one mistake must not overrule it.
* A candidate that gives no number where another does has no vote: any number of NaN must not overrule a result. An
  output in which nobody gives one verifies nothing, and that is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dovetail._coverage import EMPTY, cover, same_specials
from dovetail.types import DataType

__all__ = ["Output", "Result", "Verdict", "describe_arrays", "judge", "judge_against", "tolerance"]

_TOLERANCES: Final = {
    DataType.FLOAT: 1e-4,
    DataType.HALF: 2e-2,
    DataType.BF16: 5e-2,
    DataType.FP8: 2.5e-1,
    DataType.INT8: 1 / 127,
}
_WIDTHS: Final = tuple(DataType[name] for name in ["FLOAT", "HALF", "BF16", "FP8", "INT8", "INT4", "FP4"])
"""From wide to narrow; types that are not here lose nothing."""
_SMALL_TYPES: Final = {dtype.numpy: dtype for dtype in DataType if dtype.numpy.kind == "V"}
_FP8_MAX: Final = 448.0
_LEAST: Final = 1e-2
"""Outputs smaller than this, from inputs around one, are what is left of larger numbers: their rounding counts."""


@dataclass(frozen=True)
class Output:
    """One output of one candidate: its type, its values as real numbers in float64, and its scale if it is INT8."""

    dtype: DataType
    values: npt.NDArray[Any]
    scale: float = -1.0

    @property
    def limits(self) -> tuple[float, float]:
        """The smallest and the largest number the type can hold here."""
        if self.dtype is DataType.INT8 and self.scale > 0:
            return -128 * self.scale, 127 * self.scale
        return (-_FP8_MAX, _FP8_MAX) if self.dtype is DataType.FP8 else (-np.inf, np.inf)


@dataclass(frozen=True)
class Result:
    """What one candidate computed, and the types it read."""

    outputs: tuple[Output, ...]
    inputs: tuple[DataType, ...] = ()
    tolerance: float = 0.0
    """What its arithmetic may be off more than its types say, relative to the largest magnitude of an output."""

    @property
    def width(self) -> int:
        """How narrow the narrowest type is; 0 for FP32."""
        types = (*self.inputs, *(output.dtype for output in self.outputs))
        return max((_WIDTHS.index(dtype) for dtype in types if dtype in _WIDTHS), default=0)


@dataclass
class Verdict:
    """Which candidates are wrong, or that no judgement is possible."""

    wrong: dict[int, str] = field(default_factory=dict)
    disagreement: str | None = None
    unverified: str | None = None
    """What agrees only because there is nothing finite in it to compare."""
    note: str = ""
    """How many elements were not compared, as they are not finite in what is right."""


def describe_arrays(arrays: Sequence[Any], *, tolerance: float = 0.0) -> Result:
    """Plain arrays as a result; those without numbers are left out, and FP64 is held to what FP32 is."""
    kept = [np.asarray(array) for array in arrays]
    return Result(
        tuple(Output(_type_of(array), array.astype(np.float64)) for array in kept if array.dtype.kind not in "OSUc"),
        tolerance=tolerance,
    )


def _type_of(array: npt.NDArray[Any]) -> DataType:
    """The contract's type whose tolerance holds for an array; integers of every width are compared exactly."""
    if array.dtype.kind in "iub":
        return DataType.INT64
    if array.dtype.kind == "f":
        return DataType.HALF if array.dtype.itemsize == 2 else DataType.FLOAT
    return _SMALL_TYPES.get(array.dtype, DataType.FP8)


def tolerance(output: Output, inputs: Sequence[DataType], largest: float) -> float:
    """How far an output may be off, when its largest magnitude is given.

    >>> tolerance(Output(DataType.INT8, np.zeros(1), scale=0.5), [DataType.INT8], 63.5)
    0.5005
    """
    if output.dtype not in _TOLERANCES or (output.dtype is DataType.INT8 and output.scale <= 0):
        return 0.0  # integers are counted, not measured
    step = 1.001 * output.scale if output.dtype is DataType.INT8 else 0.0
    types = [dtype for dtype in (output.dtype, *inputs) if dtype is not DataType.INT8 or not step]
    relative = max((_TOLERANCES[dtype] for dtype in types if dtype in _TOLERANCES), default=0.0)
    return max(step, relative * max(largest, _LEAST))


def judge(results: Mapping[int, Result]) -> Verdict:
    """Find the candidates that are wrong; the first candidate is the default.

    >>> one, two = (Result((Output(DataType.FLOAT, np.full(2, x)),)) for x in (1.0, 0.0))
    >>> sorted(judge({0: one, 1: two, 2: one}).wrong)
    [1]
    """
    if not results:
        return Verdict()
    widest = min(result.width for result in results.values())
    peers = {number: result for number, result in results.items() if result.width == widest}
    verdict = _settle(peers)
    reference = results[next(number for number in peers if number not in verdict.wrong)]
    others = [number for number in results if number not in peers]
    differing = [number for number in others if not _agree(reference, results[number])]
    for number in differing:
        verdict.wrong[number] = f"differs from {_WIDTHS[widest].name}: {_difference(reference, results[number])}"
    if len(peers) == 1 and len(differing) >= 2 and verdict.disagreement is None:
        verdict.disagreement = f"{len(differing)} of {len(others)} narrower ones differ from {_WIDTHS[widest].name}"
    if len(results) > 1:
        verdict.unverified, verdict.note = _tell_gaps(reference)
    return verdict


def judge_against(reference: Result, results: Mapping[int, Result]) -> Verdict:
    """Find the candidates that differ from what is known to be right.

    >>> one, two = (Result((Output(DataType.FLOAT, np.full(2, x)),)) for x in (1.0, 0.0))
    >>> judge_against(two, {0: one, 1: two}).wrong
    {0: 'differs from the reference: output 0 differs by up to 1, 0.0001 is allowed'}
    """
    wrong = {number: result for number, result in results.items() if not _agree(reference, result)}
    text = "differs from the reference: "
    verdict = Verdict(wrong={number: text + _difference(reference, result) for number, result in wrong.items()})
    verdict.unverified, verdict.note = _tell_gaps(reference)
    return verdict


def _tell_gaps(reference: Result) -> tuple[str | None, str]:
    """Which outputs verify nothing, and what others have in them that was not compared."""
    found = [(f"output {i}: ", cover(out.values, out.values)) for i, out in enumerate(reference.outputs)]
    if found and not any(coverage.size for _, coverage in found):
        return EMPTY, ""
    hollow = [where + coverage.describe() for where, coverage in found if coverage.is_hollow]
    noted = [where + text for where, coverage in found if not coverage.is_hollow and (text := coverage.describe())]
    return "; ".join(hollow) or None, "; ".join(noted)


def _settle(results: Mapping[int, Result]) -> Verdict:
    """Group candidates of one precision whose outputs agree; the majority of those that give numbers is right."""
    groups: list[list[int]] = []
    for candidate, result in results.items():
        home = next((g for g in groups if _agree(results[g[0]], result)), None)
        if home is None:
            groups.append([candidate])
        else:
            home.append(candidate)
    return Verdict() if len(groups) < 2 else _verdict(groups, results)


def _verdict(groups: list[list[int]], results: Mapping[int, Result]) -> Verdict:
    hollow = _find_hollow(results)
    votes = [0 if group[0] in hollow else len(group) for group in groups]
    largest = groups[int(np.argmax(votes))]
    difference = _difference(results[groups[0][0]], results[groups[1][0]])
    if max(votes) >= 2 and 2 * max(votes) > sum(votes):
        others = [c for group in groups if group is not largest for c in group]
        return Verdict(wrong=dict.fromkeys(others, f"differs from the majority: {difference}"))
    dropped = [c for group in groups[1:] for c in group]
    reason = f"disagrees with the default and there is no reference: {difference}"
    kept = f"{difference}; kept {len(groups[0])} like the default"
    return Verdict(wrong=dict.fromkeys(dropped, reason), disagreement=kept)


def _find_hollow(results: Mapping[int, Result]) -> frozenset[int]:
    """The candidates that have nothing finite in an output in which another one has."""
    has_numbers = {number: [np.isfinite(out.values).any() for out in r.outputs] for number, r in results.items()}
    wanted = [any(column) for column in zip(*has_numbers.values(), strict=True)]
    return frozenset(number for number, found in has_numbers.items() if found != wanted)


def _agree(one: Result, other: Result) -> bool:
    return all(gap <= allowed for gap, allowed in _gaps(one, other))


def _difference(one: Result, other: Result) -> str:
    for index, (gap, allowed) in enumerate(_gaps(one, other)):
        if gap > allowed:
            return f"output {index} differs by up to {gap:.3g}, {allowed:.3g} is allowed"
    return "outputs differ"


def _gaps(one: Result, other: Result) -> list[tuple[float, float]]:
    """For each output the largest difference and what is allowed."""
    if len(one.outputs) != len(other.outputs):
        return [(np.inf, 0.0)]
    gaps = []
    for a, b in zip(one.outputs, other.outputs, strict=True):
        if a.values.shape != b.values.shape:
            gaps.append((np.inf, 0.0))
            continue
        left, right = np.clip(a.values, *b.limits), np.clip(b.values, *a.limits)
        largest = max(_largest(left), _largest(right))
        allowed = max(tolerance(a, one.inputs, largest), tolerance(b, other.inputs, largest))
        allowed = max(allowed, max(one.tolerance, other.tolerance) * largest)
        gaps.append((_gap(left, right, ignores_nan=DataType.INT8 in (a.dtype, b.dtype)), allowed))
    return gaps


def _largest(values: npt.NDArray[Any]) -> float:
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


def _gap(left: npt.NDArray[Any], right: npt.NDArray[Any], *, ignores_nan: bool) -> float:
    same = (left == right) | same_specials(left, right)
    if ignores_nan:
        same |= np.isnan(left) | np.isnan(right)
    with np.errstate(invalid="ignore"):
        distance = np.abs(left - right)
    return float(np.where(same, 0.0, np.nan_to_num(distance, nan=np.inf, posinf=np.inf)).max(initial=0.0))
