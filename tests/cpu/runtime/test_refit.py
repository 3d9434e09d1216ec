"""Replacing weights in a loaded engine, and plans without weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail as dt
from tests.support.plugins import PlainCreator, ScalePlugin

_RNG = np.random.default_rng(7)
SHAPES = {
    "conv.w": (4, 3, 3, 3),
    "conv.b": (4,),
    "bn.scale": (4,),
    "bn.bias": (4,),
    "bn.mean": (4,),
    "bn.var": (4,),
}


def _weights(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    weights = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
    weights["bn.var"] = np.abs(weights["bn.var"]) + 0.5
    return weights


def _model(weights: dict[str, np.ndarray]) -> Any:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("Conv", ["x", "conv.w", "conv.b"], ["c"], pads=[1, 1, 1, 1], name="conv"),
        helper.make_node("BatchNormalization", ["c", "bn.scale", "bn.bias", "bn.mean", "bn.var"], ["n"], name="bn"),
        helper.make_node("TestScale", ["n"], ["p"], name="scale", factor=2.0),
        helper.make_node("Relu", ["p"], ["y"], name="relu"),
    ]
    graph = helper.make_graph(
        nodes,
        "conv_bn",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4, 8, 8])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=onnx.IR_VERSION)


def _registry() -> Any:
    registry = dt.PluginRegistry(parent=dt.get_plugin_registry())
    registry.register_creator(PlainCreator("TestScale", ScalePlugin), "")
    return registry


def _build(weights: dict[str, np.ndarray], *flags: Any, shapes: Any = None, providers: Any = None) -> Any:
    config = dt.BuilderConfig()
    for flag in flags:
        config.set_flag(flag)
    return dt.compile(_model(weights), registry=_registry(), config=config, shapes=shapes, providers=providers)


X = _RNG.standard_normal((2, 3, 8, 8)).astype(np.float32)


def test_batch_normalization_is_folded_unless_weights_may_change() -> None:
    cpu = ["cpu"]  # where a step is a node
    plain = [step.op for step in _build(_weights(0), providers=cpu).manifest.programs[0].steps]
    kept = [step.op for step in _build(_weights(0), dt.BuilderFlag.REFIT, providers=cpu).manifest.programs[0].steps]
    assert "BatchNormalization" not in plain
    assert "BatchNormalization" in kept
    np.testing.assert_allclose(
        _build(_weights(0))(X), _build(_weights(0), dt.BuilderFlag.REFIT)(X), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("providers", [None, ["cpu"]])
@pytest.mark.parametrize("shapes", [None, {"x": ((1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8))}])
def test_refit_equals_a_fresh_build(shapes: Any, providers: Any) -> None:
    engine = _build(_weights(0), dt.BuilderFlag.REFIT, shapes=shapes, providers=providers)
    before = engine(X)
    refitter = dt.Refitter(engine)
    assert refitter.get_all_weights() == sorted(SHAPES)
    assert refitter.get_missing_weights() == []
    for name, array in _weights(1).items():
        refitter.set_named_weights(name, array)
    assert refitter.refit_cuda_engine()
    fresh = _build(_weights(1), dt.BuilderFlag.REFIT, shapes=shapes, providers=providers)(X)
    np.testing.assert_array_equal(engine(X), fresh)
    assert not np.allclose(before, fresh)


def test_a_stripped_plan_runs_after_refit_and_equals_a_fresh_build(tmp_path: Any) -> None:
    engine = _build(_weights(0), dt.BuilderFlag.REFIT, dt.BuilderFlag.STRIP_PLAN)
    with pytest.raises(dt.UsageError, match="weight\\(s\\) are not in the plan"):
        engine(X)
    path = tmp_path / "stripped.plan"
    engine.save(path)
    full = tmp_path / "full.plan"
    _build(_weights(0), dt.BuilderFlag.REFIT).save(full)
    assert path.stat().st_size < full.stat().st_size
    runtime = dt.Runtime()
    runtime.get_plugin_registry().register_creator(PlainCreator("TestScale", ScalePlugin), "")
    loaded = runtime.load_engine(path)
    refitter = dt.Refitter(loaded)
    assert refitter.get_missing_weights() == sorted(SHAPES)
    with pytest.raises(dt.UsageError, match="are missing"):
        refitter.refit_cuda_engine()
    for name, array in _weights(1).items():
        refitter.set_named_weights(name, dt.Weights(array))
    refitter.refit_cuda_engine()
    fresh = _build(_weights(1), dt.BuilderFlag.REFIT)(X)
    np.testing.assert_array_equal(loaded(X), fresh)
    loaded.save(full)
    np.testing.assert_array_equal(runtime.load_engine(full)(X), fresh)


def test_weights_that_do_not_fit_are_refused() -> None:
    engine = _build(_weights(0), dt.BuilderFlag.REFIT)
    refitter = dt.Refitter(engine)
    with pytest.raises(dt.UsageError, match="do not fit"):
        refitter.set_named_weights("conv.b", np.zeros(5, np.float32))
    with pytest.raises(dt.UsageError, match="do not fit"):
        refitter.set_named_weights("conv.b", np.zeros(4, np.float64))
    with pytest.raises(dt.UsageError, match="NaN"):
        refitter.set_named_weights("conv.b", np.full(4, np.nan, np.float32))
    with pytest.raises(dt.UsageError, match="no such weight"):
        refitter.set_named_weights("nothing", np.zeros(4, np.float32))
    with pytest.raises(dt.UsageError, match="not built for refit"):
        dt.Refitter(_build(_weights(0)))


def test_individual_refit_lists_the_others_with_the_reason() -> None:
    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input("x", dt.float32, (2, 3))
    one = network.add_constant((2, 3), np.ones((2, 3), np.float32))
    two = network.add_constant((2, 3), np.ones((2, 3), np.float32))
    network.set_weights_name(one.weights, "one")
    network.set_weights_name(two.weights, "two")
    total = network.add_elementwise(x, one.get_output(0), dt.ElementWiseOperation.SUM).get_output(0)
    total = network.add_elementwise(total, two.get_output(0), dt.ElementWiseOperation.SUM).get_output(0)
    network.mark_output(total)
    network.mark_weights_refittable("one")
    config = builder.create_builder_config()
    config.set_flag(dt.BuilderFlag.REFIT_INDIVIDUAL)
    engine = builder.build_engine_with_config(network, config)
    refitter = dt.Refitter(engine)
    assert refitter.get_all_weights() == ["one"]
    assert refitter.excluded_weights == {"two": "not marked with mark_weights_refittable"}
    refitter.set_named_weights("one", np.full((2, 3), 5.0, np.float32))
    refitter.refit_cuda_engine()
    np.testing.assert_allclose(engine(np.zeros((2, 3), np.float32)), 6.0)


def test_a_provider_that_re_creates_its_steps_is_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a provider reads weights when it compiles; here each compiled step is counted."""
    from dovetail.provider.interfaces import RefitMode, StoredKernel
    from dovetail.provider.loader import get_provider

    engine = _build(_weights(0), dt.BuilderFlag.REFIT, providers=["cpu"])
    engine(X)
    provider = get_provider("cpu")
    compiled: list[str] = []
    original = provider.load_kernel

    def load_and_count(stored: StoredKernel) -> Any:
        compiled.append(stored.op)
        return original(stored)

    monkeypatch.setattr(provider, "refit_mode", RefitMode.RECREATE)
    monkeypatch.setattr(provider, "load_kernel", load_and_count)
    refitter = dt.Refitter(engine)
    for name, array in _weights(1).items():
        refitter.set_named_weights(name, array)
    refitter.refit_cuda_engine()
    assert compiled == ["Conv", "BatchNormalization", "Relu"]
    monkeypatch.undo()
    fresh = _build(_weights(1), dt.BuilderFlag.REFIT, providers=["cpu"])
    np.testing.assert_array_equal(engine(X), fresh(X))


def test_a_plan_for_refit_without_weights_says_that_there_are_none() -> None:
    network = dt.Builder().create_network()
    x = network.add_input("x", dt.float32, (2, 3))
    network.mark_output(network.add_identity(x).get_output(0))
    config = dt.BuilderConfig()
    config.set_flag(dt.BuilderFlag.REFIT)
    engine = dt.compile(network, config=config)
    refitter = dt.Refitter(engine)
    assert (refitter.get_all_weights(), refitter.get_missing_weights()) == ([], [])
    assert refitter.refit_cuda_engine()
    with pytest.raises(dt.UsageError, match="the engine has no such weight"):
        refitter.set_named_weights("w", np.zeros(3, np.float32))
    np.testing.assert_array_equal(engine(np.ones((2, 3), np.float32)), 1.0)


@pytest.mark.parametrize("location", [dt.TensorLocation.HOST, dt.TensorLocation.DEVICE, 0, 1])
def test_weights_come_with_a_location(location: Any) -> None:
    old, new = _weights(1), _weights(2)
    engine, expected = _build(old, dt.BuilderFlag.REFIT), _build(new)
    refitter = dt.Refitter(engine)
    assert refitter.get_weights_location("conv.w") == dt.TensorLocation.HOST
    for name, array in new.items():
        assert refitter.set_named_weights(name, dt.Weights(array), location)
    assert refitter.get_weights_location("conv.w") == location
    assert refitter.refit_cuda_engine()
    x = _RNG.standard_normal((2, 3, 8, 8)).astype(np.float32)
    np.testing.assert_allclose(engine(x), expected(x), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="7"):
        refitter.set_named_weights("conv.b", new["conv.b"], 7)  # type: ignore[arg-type]


@pytest.mark.parametrize("providers", [["cpu"], ["onnxruntime", "cpu"]])
def test_an_engine_is_written_without_its_weights_and_gets_them_again(providers: list[str]) -> None:
    weights = _weights(0)
    engine = _build(weights, dt.BuilderFlag.REFIT, providers=providers)
    x = _RNG.standard_normal((2, 3, 8, 8)).astype(np.float32)
    expected = engine(x)
    runtime = dt.Runtime()
    runtime.get_plugin_registry().register_creator(PlainCreator("TestScale", ScalePlugin), "")
    loaded = runtime.deserialize_cuda_engine(engine.serialize(exclude_weights=True))
    refitter = dt.Refitter(loaded)
    missing = refitter.get_missing_weights()
    assert "conv.w" in missing
    for name in missing:
        refitter.set_named_weights(name, weights[name])
    refitter.refit_cuda_engine()
    np.testing.assert_allclose(loaded(x), expected, rtol=1e-5, atol=1e-6)
