"""How long the runs of an engine take, measured as its callers see it: ``engine.benchmark()``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dovetail import markup
from dovetail.errors import InputError
from dovetail.plan.manifest import Manifest, TensorRecord
from dovetail.runtime.measuring import Pace, measure, summarize
from dovetail.units import format_time

if TYPE_CHECKING:
    from dovetail.runtime.engine import Engine

__all__ = ["BenchmarkResult", "benchmark_engine", "make_inputs"]

_SHOWN: Final = ("min", "median", "p90", "p99", "max")
_SEED: Final = 0


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


def make_inputs(manifest: Manifest) -> list[Any]:
    """Arrays for every input, in its fixed shape or that of the first profile: zeros for integers, else random numbers.

    Raises:
        InputError: An input has no such shape, or is no array of numbers.
    """
    rng = np.random.default_rng(_SEED)
    return [_make_input(tensor, manifest, rng) for tensor in manifest.inputs]


def _make_input(tensor: TensorRecord, manifest: Manifest, rng: np.random.Generator) -> Any:
    shape = _find_shape(tensor, manifest)
    if shape is None or tensor.type or tensor.is_shape:
        raise InputError(
            "nothing can be made up for it",
            where=f"input '{tensor.name}'",
            expected="an array of numbers of a known shape",
            got=tensor.type or "a shape that depends on the caller",
            fix="pass arrays: engine.benchmark(x)",
        )
    dtype = np.dtype(tensor.dtype)
    if dtype.kind in "iub":
        return np.zeros(shape, dtype)
    return rng.uniform(-1.0, 1.0, shape).astype(np.float32).astype(dtype)


def _find_shape(tensor: TensorRecord, manifest: Manifest) -> tuple[int, ...] | None:
    profile = manifest.profiles[0].shapes if manifest.profiles else {}
    return tuple(profile[tensor.name][1]) if tensor.name in profile else tensor.fixed_shape
