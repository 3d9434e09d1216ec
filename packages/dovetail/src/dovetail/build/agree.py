"""Whether tactics that should compute the same thing do: pure comparison of their outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from dovetail.types import DataType

__all__ = ["Verdict", "judge", "tolerance"]

Output = tuple[DataType, Any, float]
"""Type, values as float64, and scale."""

_TOLERANCES: Final = {DataType.FLOAT: 1e-4, DataType.HALF: 2e-2, DataType.BF16: 5e-2, DataType.FP8: 2.5e-1}


@dataclass
class Verdict:
    """Which candidates are wrong, or that no judgement is possible."""

    wrong: dict[int, str] = field(default_factory=dict)
    disagreement: str | None = None


def tolerance(dtype: DataType, scale: float) -> tuple[float, float]:
    """Relative and absolute tolerance of a type; INT8 may differ by one step."""
    if dtype is DataType.INT8 and scale > 0:
        return 0.0, scale * 1.001
    loose = _TOLERANCES.get(dtype, 0.0)
    return loose, loose


def judge(results: Mapping[int, Sequence[Output]]) -> Verdict:
    """Group candidates whose outputs agree; with three or more, the majority is right.

    >>> one = [(DataType.FLOAT, np.ones(2), -1.0)]; two = [(DataType.FLOAT, np.zeros(2), -1.0)]
    >>> sorted(judge({0: one, 1: two, 2: one}).wrong)
    [1]
    """
    groups: list[list[int]] = []
    for candidate, outputs in results.items():
        home = next((g for g in groups if _agree(results[g[0]], outputs)), None)
        if home is None:
            groups.append([candidate])
        else:
            home.append(candidate)
    if len(groups) < 2:
        return Verdict()
    return _verdict(groups, results)


def _verdict(groups: list[list[int]], results: Mapping[int, Sequence[Output]]) -> Verdict:
    largest = max(groups, key=len)
    difference = _difference(results[groups[0][0]], results[groups[1][0]])
    if len(results) >= 3 and 2 * len(largest) > len(results):
        others = [c for group in groups if group is not largest for c in group]
        return Verdict(wrong={c: f"differs from the majority: {difference}" for c in others})
    kept = groups[0]
    dropped = [c for group in groups[1:] for c in group]
    reason = f"disagrees with the default and there is no reference: {difference}"
    return Verdict(wrong=dict.fromkeys(dropped, reason), disagreement=f"{difference}; kept {len(kept)} like the default")


def _agree(one: Sequence[Output], other: Sequence[Output]) -> bool:
    return all(_close(a, b) for a, b in zip(one, other, strict=True))


def _close(one: Output, other: Output) -> bool:
    relative = max(tolerance(one[0], one[2])[0], tolerance(other[0], other[2])[0])
    absolute = max(tolerance(one[0], one[2])[1], tolerance(other[0], other[2])[1])
    return one[1].shape == other[1].shape and np.allclose(one[1], other[1], rtol=relative, atol=absolute, equal_nan=True)


def _difference(one: Sequence[Output], other: Sequence[Output]) -> str:
    for index, (a, b) in enumerate(zip(one, other, strict=True)):
        if not _close(a, b):
            worst = float(np.nanmax(np.abs(a[1] - b[1]))) if a[1].size and a[1].shape == b[1].shape else float("nan")
            return f"output {index} differs by up to {worst:.3g}"
    return "outputs differ"
