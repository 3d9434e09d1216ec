"""How far the outputs of an engine are from those of the FP32 network, over the samples of the build."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.build.precision.trial import Sample
from dovetail.runtime.engine import Engine

__all__ = ["OutputDifference", "compare_outputs"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class OutputDifference:
    """One output over all samples; errors are over elements that are finite on both sides."""

    name: str
    num_samples: int
    max_abs: float
    """The largest difference of an element."""
    mean_abs: float
    """The typical one."""
    scale: float
    """The largest magnitude in FP32, which the errors are to be seen against."""
    num_broken: int = 0
    """Elements that are finite in FP32 only."""

    @property
    def max_share(self) -> float:
        """The largest difference as a share of the largest magnitude."""
        return self.max_abs / self.scale if self.scale else self.max_abs

    @property
    def mean_share(self) -> float:
        """The typical difference as a share of the largest magnitude."""
        return self.mean_abs / self.scale if self.scale else self.mean_abs

    def describe(self) -> str:
        """One line for people."""
        text = f"'{self.name}': largest error {self.max_abs:.3g} ({100 * self.max_share:.2g}% of the largest value), "
        text += f"typical {self.mean_abs:.3g} ({100 * self.mean_share:.2g}%)"
        return f"{text}; {self.num_broken} element(s) became NaN or infinite" if self.num_broken else text

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "max_share": self.max_share, "mean_share": self.mean_share}


def compare_outputs(engine: Engine, samples: Sequence[Sample]) -> list[OutputDifference]:
    """Run an engine over the samples, and compare each output that is a tensor of numbers."""
    pairs: dict[str, list[tuple[Array, Array]]] = {}
    for sample in samples:
        results = _run(engine, sample)
        for name, expected in sample.outputs.items():
            if isinstance(expected, np.ndarray) and expected.dtype.kind in "fiub":
                pairs.setdefault(name, []).append((np.asarray(results[name]), expected))
    return [_compare(name, found) for name, found in pairs.items()]


def _run(engine: Engine, sample: Sample) -> dict[str, Any]:
    """The outputs by name; inputs are given in the types that the engine takes."""
    types = {record.name: np.dtype(record.dtype) for record in engine.manifest.inputs}
    names = [record.name for record in engine.manifest.outputs]
    result = engine(**{name: np.asarray(array).astype(types[name]) for name, array in sample.inputs.items()})
    return dict(result) if isinstance(result, dict) else {names[0]: result}


def _compare(name: str, pairs: Sequence[tuple[Array, Array]]) -> OutputDifference:
    largest, total, count, scale, broken = 0.0, 0.0, 0, 0.0, 0
    for found, expected in pairs:
        if found.shape != expected.shape:
            return OutputDifference(
                name=name, num_samples=len(pairs), max_abs=np.inf, mean_abs=np.inf, scale=1.0, num_broken=expected.size
            )
        a, b = found.astype(np.float64), expected.astype(np.float64)
        finite = np.isfinite(a) & np.isfinite(b)
        errors = np.abs(a[finite] - b[finite])
        broken += int((np.isfinite(b) & ~np.isfinite(a)).sum())
        largest = max(largest, float(errors.max(initial=0.0)))
        scale = max(scale, float(np.abs(b[finite]).max(initial=0.0)))
        total, count = total + float(errors.sum()), count + errors.size
    return OutputDifference(
        name=name,
        num_samples=len(pairs),
        max_abs=largest,
        mean_abs=total / count if count else 0.0,
        scale=scale,
        num_broken=broken,
    )
