"""Memory for dimensions that decrease where another one increases, and for dimensions of zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import dovetail as dt
from dovetail.plugin import as_array
from tests.support.dynamic_plugins import PositivePlugin
from tests.support.formula_plugin import FORMULAS, PROFILE, build_formula, check_formula
from tests.support.plugins import PlainCreator, build_engine


@pytest.mark.parametrize("formula", FORMULAS.values(), ids=FORMULAS.keys())
@pytest.mark.parametrize("profile", [PROFILE, None], ids=["profile", "open"])
def test_a_plugin_runs_over_its_whole_profile(formula: Callable[[Any], Any], profile: Any) -> None:
    check_formula(build_formula(formula, profile), formula)


class RemainingPlugin(PositivePlugin):
    """Counts up to the size that it writes, 10 - n, which is also the upper bound."""

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        ten = exprBuilder.constant(10)
        upper = exprBuilder.operation(dt.DimensionOperation.SUB, ten, inputs[0][0])
        return [dt.DimsExprs([exprBuilder.declare_size_tensor(1, upper, upper)]), dt.DimsExprs(0)]

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int
    ) -> None:
        size = 10 - input_desc[0].dims[0]
        assert output_desc[0].dims[0] in (-1, size)
        as_array(outputs[0], output_desc[0], shape=(size,))[...] = np.arange(size)
        as_array(outputs[1], output_desc[1])[...] = size


def test_a_size_tensor_whose_bound_decreases() -> None:
    plan, runtime = build_engine(
        RemainingPlugin(),
        PlainCreator("TestPositive", lambda factor: RemainingPlugin(factor)),
        shape=(-1,),
        profile=((1,), (5,), (8,)),
    )
    engine = runtime.deserialize_cuda_engine(plan)
    for n in (1, 5, 8):
        np.testing.assert_array_equal(np.asarray(engine(np.zeros(n, np.float32))), np.arange(10 - n))


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
