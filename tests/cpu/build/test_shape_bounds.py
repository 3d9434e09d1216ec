"""Memory for dimensions that decrease where another one increases, and for dimensions of zero."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import dovetail as dt
from dovetail.plan.container import plan_bytes
from dovetail.plan.manifest import encode_manifest
from dovetail.plugin import as_array, ceil_div, dim_max, dim_min
from dovetail.plugin.symbolic import SymbolicDim
from tests.support.plugins import PlainCreator, ScalePlugin

LOW, OPT, HIGH = 4, 5, 8
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


def _build(formula: Callable[[Any], Any], profile: tuple[Any, Any, Any] | None) -> Any:
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
    config.providers = ["cpu"]
    if profile is not None:
        optimization = builder.create_optimization_profile()
        optimization.set_shape("x", *profile)
        config.add_optimization_profile(optimization)
    plan = builder.build_plan(network, config, is_open=profile is None)
    runtime = dt.Runtime()
    runtime.get_plugin_registry().register_creator(PlainCreator("TestScale", make), "")
    return runtime.deserialize_cuda_engine(plan_bytes(encode_manifest(plan.manifest), plan.blobs))


@pytest.mark.parametrize("formula", FORMULAS.values(), ids=FORMULAS.keys())
@pytest.mark.parametrize("profile", [((LOW, 2), (OPT, 2), (HIGH, 2)), None], ids=["profile", "open"])
def test_a_plugin_runs_over_its_whole_profile(formula: Callable[[Any], Any], profile: Any) -> None:
    engine = _build(formula, profile)
    for n in range(LOW, HIGH + 1):
        results = engine(np.full((n, 2), -1.0, np.float32))
        size = int(formula(n))
        np.testing.assert_array_equal(results["y"], np.full((size, 2), size, np.float32))
        expected = np.concatenate([np.full((size, 2), size, np.float32), np.full((n, 2), -1.0, np.float32)])
        np.testing.assert_array_equal(results["z"], expected)


SLICES = """st = Constant<value=int64[1]{1}>() en = Constant<value=int64[1]{100}>() m1 = Constant<value=int64[1]{-1}>()
    ax = Constant<value=int64[1]{0}>() e0 = Constant<value=int64[1]{-1000}>() two = Constant<value=int64[1]{2}>() """
ZERO_MODELS = {
    "cut": "s = Slice(x, st, en, ax) y = Neg(s)",
    "last": "s = Slice(x, m1, en, ax) y = Neg(s)",
    "reversed": "s = Slice(x, m1, e0, ax, m1) y = Neg(s)",
    "every second": "s = Slice(x, st, en, ax, two) c = Concat<axis=0>(s, x) y = Neg(c)",
    "halves": "s = Slice(x, st, en, ax) c = Concat<axis=0>(s, s, x) t = Slice(c, two, en, ax) y = Exp(t)",
    "reshaped": "k = Constant<value=int64[2]{-1, 8}>() r = Reshape(x, k) y = Neg(r)",
    "copied size": "k = Constant<value=int64[3]{0, 2, 2}>() r = Reshape(x, k) y = Neg(r)",
    "size of a shape": """s = Shape(x) g = Gather<axis=0>(s, ax) q = Concat<axis=0>(g, m1) r = Reshape(x, q)
        t = Transpose<perm=[1,0]>(r) y = Neg(t)""",
}


@pytest.mark.parametrize("text", ZERO_MODELS.values(), ids=ZERO_MODELS.keys())
@pytest.mark.parametrize("shapes", [{"x": ((0, 4), (4, 4), (12, 4))}, None], ids=["profile", "open"])
def test_a_dimension_of_zero_has_the_shape_that_onnx_says(text: str, shapes: Any) -> None:
    header = '<ir_version: 10, opset_import: ["" : 21]> g (float[n,4] x) => (float y) {'
    model = onnx.parser.parse_model(f"{header} {SLICES} {text} }}")
    engine = dt.compile(model, providers=["cpu"], shapes=shapes)
    reference = ReferenceEvaluator(model)
    for n in (0, 2, 4, 12):
        x = np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32)
        if n == 0 and text.startswith("s = Shape"):
            continue  # NumPy, which the reference uses, cannot reshape nothing to (0, -1)
        (expected,) = reference.run(None, {"x": x})
        result = np.asarray(engine(x))
        assert result.shape == expected.shape
        np.testing.assert_allclose(result, expected, rtol=1e-5)
