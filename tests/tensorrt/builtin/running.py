"""Building, storing and running a network of one built-in plugin, and comparing what comes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

import dovetail as dt
from dovetail.plugin.check.cases.problem import InputCase, make_inputs
from dovetail.plugin.fields import PluginField, PluginFieldCollection, PluginFieldType
from dovetail_tensorrt.builtin import register_all
from tests.tensorrt.builtin.cases import PluginCase
from tests.tensorrt.builtin.problems import Problem

Array = npt.NDArray[Any]

TYPES = {
    np.dtype(np.float32): dt.float32,
    np.dtype(np.float16): dt.float16,
    np.dtype(ml_dtypes.bfloat16): dt.bfloat16,
    np.dtype(np.int8): dt.int8,
    np.dtype(np.int32): dt.int32,
    np.dtype(np.int64): dt.int64,
}
TOLERANCES = {np.dtype(np.float16): (4e-3, 4e-3), np.dtype(np.float32): (2e-4, 1e-4)}


def make_registry(namespace: str = "") -> dt.PluginRegistry:
    registry = dt.PluginRegistry()
    assert register_all(registry, namespace)
    return registry


def make_fields(fields: dict[str, Any]) -> PluginFieldCollection:
    return PluginFieldCollection([_make_field(name, value) for name, value in fields.items()])


def _make_field(name: str, value: Any) -> PluginField:
    if isinstance(value, str):
        return PluginField(name, value.encode() + b"\0", PluginFieldType.CHAR)
    array = np.atleast_1d(np.array(value))
    is_integer = array.dtype.kind == "i"
    kind = PluginFieldType.INT32 if is_integer else PluginFieldType.FLOAT32
    return PluginField(name, array.astype(np.int32 if is_integer else np.float32), kind)


def create(problem: Problem, registry: dt.PluginRegistry | None = None) -> Any:
    creator = (registry or make_registry()).get_creator(problem.name, problem.version, "")
    return creator.create_plugin("layer", make_fields(problem.fields), dt.TensorRTPhase.BUILD)


def build_plan(problem: Problem, config: Any = None) -> bytes:
    """The plan of a network whose first dimensions may be of any size."""
    builder = dt.Builder()
    network = builder.create_network()
    tensors = [
        network.add_input(f"x{number}", TYPES[array.dtype], array.shape) for number, array in enumerate(problem.inputs)
    ]
    layer = network.add_plugin_v3(tensors, [], create(problem))
    for number in range(layer.num_outputs):
        layer.get_output(number).name = f"y{number}"
        network.mark_output(layer.get_output(number))
    return bytes(builder.build_serialized_network(network, config or builder.create_builder_config()))


def run_in_engine(problem: Problem) -> list[Array]:
    """The outputs of an engine that was stored and loaded again."""
    runtime = dt.Runtime()
    register_all(runtime.get_plugin_registry(), "")
    return run_engine(runtime.deserialize_cuda_engine(build_plan(problem)), problem)


def run_engine(engine: Any, problem: Problem) -> list[Array]:
    """The outputs, in their order."""
    result = engine(**{f"x{number}": array for number, array in enumerate(problem.inputs)})
    return [result[f"y{number}"] for number in range(len(result))] if isinstance(result, dict) else [result]


def make_problem(case: PluginCase) -> Problem:
    """A case with numbers in its first shapes."""
    types = tuple(dt.DataType[name] for name in case.types)
    inputs = make_inputs(InputCase(types=types, cases=case.shapes[:1]), case.shapes[0], seed=3)
    return Problem(case.name, dict(case.fields), [np.asarray(array) for array in inputs], case.version)


def load_on_cuda(problem: Problem) -> Any:
    """An engine whose plugin the provider 'cuda' has."""
    config = dt.Builder().create_builder_config()
    config.providers = ["cuda", "cpu"]
    runtime = dt.Runtime()
    register_all(runtime.get_plugin_registry(), "")
    return runtime.deserialize_cuda_engine(build_plan(problem, config))


def compare(got: Sequence[Array], expected: Sequence[Array], *, dtype: Any) -> None:
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        assert one.shape == other.shape
        if one.dtype.kind == "i":
            np.testing.assert_array_equal(one, other)
        else:
            rtol, atol = TOLERANCES[np.dtype(dtype)]
            one, wide = one.astype(np.float64), other.astype(np.float64)
            np.testing.assert_allclose(one, wide, rtol=rtol, atol=atol * max(1.0, np.abs(wide).max(initial=0.0)))
