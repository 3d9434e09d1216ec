"""Cases for the walk over all layers: a network with one layer in it, the arrays to feed, and what NumPy says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dovetail.network.api.definition import Network
from dovetail.network.api.tensor import ITensor
from dovetail.plugin.registry import PluginRegistry
from dovetail.types import DataType, data_type_from_numpy
from tests.support.run_network import run_network

__all__ = ["CASES", "Case", "Sketch", "case", "check", "rand"]

Expected = Sequence[tuple[ITensor, Any]]


def rand(*shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    """Floats that are the same in every run."""
    return np.random.default_rng(seed + sum(shape)).uniform(low, high, shape).astype(np.float32)


@dataclass
class Sketch:
    """A network that remembers what to feed it."""

    open_dims: bool = False
    network: Network = field(default_factory=Network)
    feeds: dict[str, np.ndarray] = field(default_factory=dict)
    registry: PluginRegistry = field(default_factory=PluginRegistry)

    def input(self, array: Any, *, fixed: bool = False) -> ITensor:
        """An input that will be fed this array; with ``fixed`` its dims are constants in every run."""
        array = np.asarray(array)
        name = f"input_{len(self.feeds)}"
        self.feeds[name] = array
        shape = [-1] * array.ndim if self.open_dims and not fixed else array.shape
        return self.network.add_input(name, data_type_from_numpy(array.dtype), shape)

    def constant(self, array: Any) -> ITensor:
        """A constant layer's tensor."""
        array = np.asarray(array)
        return self.network.add_constant(array.shape, array).get_output(0)

    def numbers(self, *values: int, dtype: type = np.int64) -> ITensor:
        """A 1-D integer input of constant length, as dynamic forms of ``set_input`` take it."""
        return self.input(np.asarray(values, dtype), fixed=True)

    def scalar(self, value: Any, dtype: type = np.int64) -> ITensor:
        """A 0-D input."""
        return self.input(np.asarray(value, dtype), fixed=True)


@dataclass(frozen=True)
class Case:
    """One case: which method it is about, and how to make it."""

    method: str
    label: str
    make: Callable[[Sketch], Expected]
    open_dims: bool
    """Whether it also works when no dimension of the inputs is a constant."""
    tolerance: float


CASES: list[Case] = []


def case(
    method_name: str, label: str = "", *, open_dims: bool = True, tolerance: float = 1e-5, **parameters: Any
) -> Callable[[Callable[..., Expected]], Callable[..., Expected]]:
    """Collect a case; further keywords are passed to the function."""

    def collect(make: Callable[..., Expected]) -> Callable[..., Expected]:
        CASES.append(Case(method_name, label, lambda sketch: make(sketch, **parameters), open_dims, tolerance))
        return make

    return collect


def check(found: Case, *, open_dims: bool) -> None:
    """Build the network of a case, run it, and compare type, shape and values of every output."""
    sketch = Sketch(open_dims=open_dims)
    outputs = found.make(sketch)
    for tensor, _ in outputs:
        sketch.network.mark_output(tensor)
    shapes = [(tensor.dtype, tuple(tensor.shape)) for tensor, _ in outputs]
    results = run_network(sketch.network, sketch.feeds, sketch.registry)
    for (tensor, wanted), (dtype, shape) in zip(outputs, shapes, strict=True):
        _compare(results[tensor.name], np.asarray(wanted), dtype, shape, found.tolerance)


def _compare(result: Any, wanted: np.ndarray, dtype: DataType, shape: tuple[int, ...], tolerance: float) -> None:
    assert result.dtype == wanted.dtype, f"the result is {result.dtype}, expected {wanted.dtype}"
    assert dtype.numpy == wanted.dtype, f"the tensor says {dtype.name}, expected {wanted.dtype}"
    assert result.shape == wanted.shape, f"the result has shape {result.shape}, expected {wanted.shape}"
    assert len(shape) == wanted.ndim
    assert all(said in (-1, size) for said, size in zip(shape, wanted.shape, strict=True)), f"{shape} {wanted.shape}"
    if wanted.dtype.kind in "fV":
        result, wanted = result.astype(np.float64), wanted.astype(np.float64)
        np.testing.assert_allclose(result, wanted, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(result, wanted)
