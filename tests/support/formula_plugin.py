"""A plugin whose output dimension is a formula of its input dimension, and networks around it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import dovetail as dt
from dovetail.plan.container import plan_bytes
from dovetail.plan.manifest import encode_manifest
from dovetail.plugin import as_array, ceil_div, dim_max, dim_min
from dovetail.plugin.symbolic import SymbolicDim
from tests.support.plugins import PlainCreator, ScalePlugin

__all__ = ["FORMULAS", "HIGH", "LOW", "PROFILE", "FormulaPlugin", "build_formula", "check_formula"]

LOW, OPT, HIGH = 4, 5, 8
PROFILE = ((LOW, 2), (OPT, 2), (HIGH, 2))
FORMULAS: dict[str, Callable[[Any], Any]] = {
    "a negative dividend and divisor": lambda n: (0 - n) // -2,
    "a rounded up quotient of negative numbers": lambda n: ceil_div(0 - n, -3),
    "a difference": lambda n: 10 - n,
    "a peak inside the range": lambda n: (n - 3) * (9 - n) + 1,
    "a quotient by a difference": lambda n: 24 // (9 - n),
    "a divisor of both signs": lambda n: dim_max(24 // (2 * n - 11), 0),
    "a remainder": lambda n: n % 3 + 1,
    "a remainder of a negative number": lambda n: (0 - n) % 5,
    "a comparison": lambda n: (n == 5) * 6 + (n < 7),
    "a maximum": lambda n: dim_max(1, n - 5),
    "a minimum": lambda n: dim_min(7, 12 - n),
    "nested floors": lambda n: (((40 - n) // 3) // 2) * -1 // -2,
    "a negative factor": lambda n: -3 * n + 30,
}


class FormulaPlugin(ScalePlugin):
    """Output of shape (formula(n), 2), whose elements are the number of rows; checks the memory that it receives."""

    formats = (dt.TensorFormat.LINEAR,)
    tactics = ()
    formula: Callable[[Any], Any]

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        return [dt.DimsExprs([self.formula(SymbolicDim(inputs[0][0])).expr, inputs[0][1]])]

    def clone(self) -> Any:
        copy = type(self)(self.factor, [])
        copy.__dict__.update(self.__dict__)
        return copy

    def configure_plugin(self, inputs: Any, outputs: Any) -> None:
        for desc in (*inputs, *outputs):
            sizes = zip(desc.min, desc.opt, desc.max, strict=True)
            assert all(low <= opt and (opt <= high or high == -1) for low, opt, high in sizes), (
                desc.min,
                desc.opt,
                desc.max,
            )
        super().configure_plugin(inputs, outputs)

    def get_workspace_size(self, inputs: Any, outputs: Any) -> int:
        """Bytes for the largest output, where there is one."""
        return max(8 * int(np.prod(tuple(outputs[0].max))), 0)

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int
    ) -> None:
        output = as_array(outputs[0], output_desc[0])
        if workspace:
            ctypes.memset(workspace, 255, 8 * output.size)
        output[...] = output.shape[0]


def build_formula(
    formula: Callable[[Any], Any], profile: tuple[Any, Any, Any] | None, providers: Sequence[str] = ("cpu",)
) -> Any:
    """Build, store and load a network with outputs ``y``, of shape (formula(n), 2), and ``z``, which appends x to it.

    Args:
        formula: Function of the first dimension of the input.
        profile: Min, opt and max shape of the input; open dimensions if None.
        providers: Providers of the layers around the plugin.
    """

    def make(factor: float = 1.0) -> FormulaPlugin:
        plugin = FormulaPlugin(factor, [])
        plugin.formula = formula
        return plugin

    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input("x", dt.float32, (-1, 2))
    t = network.add_activation(x, dt.ActivationType.RELU).get_output(0)
    t = network.add_plugin_v3([t], [], make()).get_output(0)
    t = network.add_activation(t, dt.ActivationType.RELU).get_output(0)
    joined = network.add_concatenation([t, x]).get_output(0)
    for name, tensor in (("y", t), ("z", joined)):
        tensor.name = name
        network.mark_output(tensor)
    config = builder.create_builder_config()
    config.providers = list(providers)
    if profile is not None:
        optimization = builder.create_optimization_profile()
        optimization.set_shape("x", *profile)
        config.add_optimization_profile(optimization)
    plan = builder.build_plan(network, config, is_open=profile is None)
    runtime = dt.Runtime()
    runtime.get_plugin_registry().register_creator(PlainCreator("TestScale", make), "")
    return runtime.deserialize_cuda_engine(plan_bytes(encode_manifest(plan.manifest), plan.blobs))


def check_formula(engine: Any, formula: Callable[[Any], Any]) -> None:
    """Run an engine of `build_formula` over the whole profile and compare its outputs."""
    for n in range(LOW, HIGH + 1):
        results = engine(np.full((n, 2), -1.0, np.float32))
        size = int(formula(n))
        expected = np.full((size, 2), size, np.float32)
        np.testing.assert_array_equal(np.asarray(results["y"]), expected)
        joined = np.concatenate([expected, np.full((n, 2), -1.0, np.float32)])
        np.testing.assert_array_equal(np.asarray(results["z"]), joined)
