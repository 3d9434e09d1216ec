"""Who gets what, in builds: budgets, groups, annotations and shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import dovetail as dt
from dovetail.testing import host_device
from tests.support.device_models import X, build, chain, expected, make_model


def _placed(engine: dt.Engine) -> dict[str, str]:
    """Layer -> provider."""
    return {s.name: s.provider for s in engine.manifest.programs[0].steps if s.kind == "kernel"}


def _check(engine: dt.Engine) -> None:
    np.testing.assert_allclose(engine(X), expected(chain(), X), rtol=1e-6)


def test_a_budget_ends_the_devices_part() -> None:
    with host_device(budget_bytes=250, cost_bytes=100):
        engine = build(chain())
        assert _placed(engine) == {"matmul": "host_device", "relu": "host_device", "softmax": "cpu", "add": "cpu"}
        _check(engine)


def test_a_budget_as_an_option() -> None:
    with host_device(cost_bytes=100):
        config = dt.BuilderConfig()
        config.provider_options = {"host_device": {"budget_bytes": "100"}}
        engine = build(chain(), config=config)
        assert _placed(engine)["matmul"] == "host_device"
        assert _placed(engine)["relu"] == "cpu"
        _check(engine)


@pytest.mark.parametrize(("budget", "on_device"), [(199, False), (200, True)])
def test_a_group_is_not_split(budget: int, on_device: bool) -> None:
    groups = {"Relu": "g", "Softmax": "g"}
    with host_device(ops=["Relu", "Softmax"], groups=groups, budget_bytes=budget, cost_bytes=100):
        engine = build(chain())
        wanted = "host_device" if on_device else "cpu"
        assert (_placed(engine)["relu"], _placed(engine)["softmax"]) == (wanted, wanted)
        _check(engine)


def test_an_annotation_breaks_a_group_as_a_whole() -> None:
    config = dt.BuilderConfig()
    config.layer_providers["soft*"] = "cpu"
    with host_device(groups={"Relu": "g", "Softmax": "g"}):
        engine = build(chain(), config=config)
        assert _placed(engine) == {"matmul": "host_device", "relu": "cpu", "softmax": "cpu", "add": "host_device"}
        _check(engine)


def test_annotations_of_the_config_and_of_the_model() -> None:
    model = chain()
    for node in model.graph.node:
        if node.name == "add":
            node.metadata_props.add(key="dovetail.layer_provider", value="cpu")
    config = dt.BuilderConfig()
    config.layer_providers["matmul"] = "cpu"
    with host_device():
        engine = build(model, config=config)
        assert _placed(engine) == {"matmul": "cpu", "relu": "host_device", "softmax": "host_device", "add": "cpu"}
        _check(engine)


def test_an_annotation_that_cannot_be_followed_is_an_error_when_strict() -> None:
    config = dt.BuilderConfig()
    config.layer_providers["softmax"] = "host_device"
    with host_device(ops=["Relu"]):
        assert _placed(build(chain(), config=config))["softmax"] == "cpu"
        with pytest.raises(dt.ProviderError, match="softmax"):
            build(chain(), config=config, strict=True)


def test_two_devices_in_order_of_preference() -> None:
    with host_device(name="first", ops=["Relu", "Add"]), host_device(name="second", ops=["Relu", "MatMul"]):
        engine = build(chain(), "first", "second")
        assert _placed(engine) == {"matmul": "second", "relu": "first", "softmax": "cpu", "add": "first"}
        _check(engine)


def test_a_device_beside_partitions_of_onnxruntime() -> None:
    with host_device(ops=["Softmax"]):
        engine = dt.compile(chain(), providers=["host_device", "onnxruntime", "cpu"])
        kinds = [(step.kind, step.provider) for step in engine.manifest.programs[0].steps]
        assert ("kernel", "host_device") in kinds
        assert kinds.count(("partition", "onnxruntime")) == 2
        for _ in range(3):
            np.testing.assert_allclose(engine(X), expected(chain(), X), rtol=1e-5)


def test_shapes_are_computed_on_the_host_and_data_is_not() -> None:
    nodes: list[Any] = [
        helper.make_node("Relu", ["x"], ["a"], name="relu"),
        helper.make_node("Shape", ["a"], ["s"], name="shape"),
        helper.make_node("Mul", ["s", "half"], ["t"], name="half_it"),
        helper.make_node("Div", ["t", "one"], ["u"], name="again"),
        helper.make_node("ConstantOfShape", ["u"], ["zeros"], name="fill"),
        helper.make_node("ReduceSum", ["zeros"], ["total"], name="sum", keepdims=0),
        helper.make_node("Add", ["a", "total"], ["y"], name="add"),
    ]
    weights = {"half": np.array([2, 1], np.int64), "one": np.array([1, 1], np.int64)}
    model = make_model(nodes, {"x": ["n", 8]}, {"y": ["n", 8]}, weights)
    with host_device():
        engine = build(model)
        placed = _placed(engine)
        assert {placed[name] for name in ("shape", "half_it", "again") if name in placed} == {"cpu"}
        assert {placed[name] for name in ("relu", "fill", "sum", "add")} == {"host_device"}
        np.testing.assert_allclose(engine(X), expected(model, X), rtol=1e-6)
