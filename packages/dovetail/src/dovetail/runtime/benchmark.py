"""How long the runs of an engine take, measured as its callers see it: ``engine.benchmark()``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dovetail import markup
from dovetail.runtime.measuring import Pace, measure, summarize
from dovetail.units import format_time

if TYPE_CHECKING:
    from dovetail.runtime.engine import Engine

__all__ = ["BenchmarkResult", "benchmark_engine"]

_SHOWN: Final = ("min", "median", "p90", "p99", "max")


@dataclass(frozen=True, kw_only=True, repr=False)
class BenchmarkResult:
    """The latencies of many runs of one engine; ``engine.benchmark()``."""

    engine: str
    """The name of the engine."""
    shapes: Mapping[str, tuple[int, ...]]
    """Of the inputs."""
    iterations: int
    throughput: float
    """Runs a second, one after the other."""
    latency_ms: Mapping[str, float]
    """``min``, ``max``, ``mean``, ``median`` and percentiles such as ``p99``."""

    @property
    def median_ms(self) -> float:
        """The median latency."""
        return self.latency_ms["median"]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {
            "engine": self.engine,
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
            "iterations": self.iterations,
            "throughput_qps": self.throughput,
            "latency_ms": dict(self.latency_ms),
        }

    def __str__(self) -> str:
        times = ", ".join(f"{name} {self._time(name)}" for name in _SHOWN)
        return (
            f"'{self.engine}', {self._shapes_text()}: {times}; {self.throughput:,.1f} runs/s ({self.iterations:,} runs)"
        )

    def __repr__(self) -> str:
        return f"<BenchmarkResult of {self}>"

    def _repr_html_(self) -> str:
        note = f"{self.iterations:,} runs, {self.throughput:,.1f} a second; {self._shapes_text()}"
        times = [[self._time(name) for name in _SHOWN]]
        heading = markup.heading(f"Benchmark of '{self.engine}'", note)
        return markup.join([heading, markup.table(_SHOWN, times, right=range(len(_SHOWN)))])

    def _time(self, name: str) -> str:
        return format_time(self.latency_ms[name] * 1e3)

    def _shapes_text(self) -> str:
        return ", ".join(f"{name} {'x'.join(map(str, shape)) or 'scalar'}" for name, shape in self.shapes.items())


def benchmark_engine(engine: Engine, inputs: Sequence[Any], pace: Pace) -> BenchmarkResult:
    """Time ``engine(*inputs)``; inputs that a run would write over are copied first."""
    arrays = engine.copy_updated(inputs)
    found = summarize(measure(lambda: engine(*arrays), pace))
    return BenchmarkResult(
        engine=engine.name,
        shapes={name: np.shape(array) for name, array in zip(engine.input_names, arrays, strict=True)},
        iterations=found["iterations"],
        throughput=found["throughput_qps"] or 0.0,
        latency_ms=found["latency_ms"],
    )
