"""Layers that 8 bits cost most stay in fp32, by what they do to the outputs on calibration data."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dovetail as dt
from dovetail.build.precision.quantize import QuantizationForm
from dovetail.build.precision.quantize_plan import QuantizationPlan, plan_quantization
from dovetail.build.precision.sensitivity import ErrorSum, choose_kept, find_groups
from dovetail.build.precision.switches import write_switches
from tests.support.precision_models import ModelWriter, make_image_network

SHAPE = (4, 3, 24, 24)


def _images(seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(0, 1, SHAPE).astype(np.float32)


def make_fragile_network() -> onnx.ModelProto:
    """Two convolutions, the second of which reads what 8 bits cannot hold: tiny numbers beside one huge channel."""
    m = ModelWriter(5)
    scales = np.ones((1, 8, 1, 1), np.float32)
    scales[0, 0] = 1e5
    undo = np.ones((8, 8, 1, 1), np.float32)
    undo[:, 0] = 0
    a = m.add("Relu", [m.conv("x", "plain", 3, 8)], "r1")
    b = m.add("Tanh", [m.conv(a, "also_plain", 8, 8)], "t")
    c = m.add("Mul", [b, m.constant("scales", scales)], "spread")
    inputs = [c, m.constant("undo", undo), m.weights("undo_b", 8)]
    m.add("Conv", inputs, "fragile")
    m.add("Tanh", ["fragile"], "y")
    return m.finish({"x": ["n", 3, 24, 24]}, {"y": ["n", 8, 24, 24]})


def _compile(model: onnx.ModelProto, **more: Any) -> dt.Engine:
    batches = [{"x": _images(seed)} for seed in range(3)]
    options = dt.PrecisionOptions(quantized="int8", calibration=batches, method="minmax", **more)
    return dt.compile(model, precision=options, shapes={"x": SHAPE})


def _error(engine: dt.Engine, model: onnx.ModelProto) -> float:
    x, total = _images(9), ErrorSum()
    total.add({"y": engine(x)}, {"y": dt.compile(model)(x)})
    return total.error


def test_the_layer_that_costs_most_stays_and_says_why() -> None:
    model = make_fragile_network()
    engine = _compile(model)
    rows = {row.layer: row for row in engine.manifest.precision}
    assert rows["fragile"].type == "fp32"
    assert rows["fragile"].reason.startswith("int8 here alone changes the outputs by ")
    assert rows["fragile"].reason.endswith("and 5% is allowed in all")
    assert rows["plain"].type == rows["also_plain"].type == "int8"
    assert _error(engine, model) < 0.06
    assert _error(_compile(model, tolerance=np.inf), model) > 0.3


def test_a_smaller_tolerance_keeps_more_and_none_that_can_be_met_is_an_error() -> None:
    model = make_image_network()
    kinds = [[row.type for row in _compile(model, tolerance=t).manifest.precision] for t in (1.0, 0.004)]
    assert kinds[0].count("int8") > kinds[1].count("int8") > 0
    with pytest.raises(dt.BuildError, match=r"int8 can have no effect(.|\n)*here alone changes the outputs"):
        _compile(model, tolerance=1e-9)


def test_a_tolerance_is_a_number_above_zero() -> None:
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(dt.UsageError, match="not a tolerance"):
            dt.PrecisionOptions(quantized="int8", tolerance=wrong)
    with pytest.raises(dt.UsageError, match="'tolerance' can have no effect"):
        dt.PrecisionOptions(float_type="fp16", tolerance=0.2)


# the parts


def _plan(model: onnx.ModelProto) -> tuple[ir.Model, QuantizationPlan]:
    from dovetail.network.inference.shapes import ShapeInference

    network = ir.from_proto(model)
    ShapeInference(network.opset_imports).infer_graph(network.graph)
    names = [value.name for node in network.graph for value in node.outputs] + ["x"]
    ranges = {name: (-3.0, 3.0) for name in names if name}
    options = dt.PrecisionOptions(quantized="int8")
    return network, plan_quantization(network.graph, options, ranges, lambda _node: "")


def test_switches_off_are_the_network_as_it_was_and_on_it_quantized() -> None:
    model = make_image_network()
    network, plan = _plan(model)
    means = {"x": np.full(3, 0.5, np.float32)}
    switched = write_switches(network, plan, QuantizationForm(kind="int8"), means)
    engine, x = dt.compile(switched.model, providers=["onnxruntime"]), _images()
    off, on = ({name: np.array(is_on) for name in switched.switches.values()} for is_on in (False, True))
    exact = dt.compile(model, providers=["onnxruntime"])(x)
    np.testing.assert_allclose(engine(x=x, **off), exact, rtol=1e-4, atol=1e-5)
    difference = np.abs(engine(x=x, **on) - exact).max()
    assert 1e-3 < difference < 0.3 * np.abs(exact).max()


def test_activations_belong_to_what_they_are_behind() -> None:
    groups = find_groups(_plan(make_image_network())[1])
    assert [[node.name for node in group] for group in groups][:3] == [["c1", "r1"], ["c2", "r2"], ["c3"]]


@settings(max_examples=50)
@given(costs=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12), limit=st.floats(0.01, 1.0))
def test_as_few_layers_are_kept_as_the_limit_needs(costs: list[float], limit: float) -> None:
    nodes = [ir.Node("", "Conv", [], num_outputs=1, name=str(i)) for i in range(len(costs))]
    prices = dict(zip(nodes, costs, strict=True))

    def plan(kept: Any) -> QuantizationPlan:
        return QuantizationPlan(layers={node: kept.get(node, "") for node in nodes})

    def measure(layers: Any) -> float:
        return sum(prices[node] for node in layers)

    kept = choose_kept(plan, [[node] for node in nodes], costs, measure, "int8", limit)
    rest = sorted(cost for node, cost in prices.items() if node not in kept)
    assert sum(rest) <= limit + 1e-9 or not rest
    cheapest_kept = min(prices[node] for node in kept)
    assert len(kept) == 1 or sum(rest) + cheapest_kept > limit - 1e-9


def test_integers_count_by_the_share_that_changed() -> None:
    total = ErrorSum()
    total.add({"label": np.array([1, 2, 3, 5])}, {"label": np.array([1, 2, 3, 4])})
    assert total.error == 0.25
    total.add({"y": np.array([np.nan])}, {"y": np.array([1.0])})
    assert total.error == np.inf
