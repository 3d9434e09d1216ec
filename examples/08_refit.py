# /// script
# requires-python = ">=3.11"
# dependencies = ["dovetail-engine[all]"]
# ///
"""Refit and stripping: new weights in a built engine, and a plan that is shipped without them.

With the REFIT flag weights are kept as they are instead of being folded, and can be replaced later without building
again. STRIP_PLAN leaves them out of the file altogether: a small plan that runs once somebody has put weights in.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import dovetail as dt

Weights = dict[str, np.ndarray]


def make_weights(seed: int) -> Weights:
    """What a training run would give."""
    rng = np.random.default_rng(seed)
    shapes = {"w1": (64, 256), "b1": (256,), "w2": (256, 10), "b2": (10,)}
    return {name: rng.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}


def make_model(weights: Weights) -> onnx.ModelProto:
    """A classifier of two layers."""
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["hidden"]),
        helper.make_node("Relu", ["hidden"], ["active"]),
        helper.make_node("Gemm", ["active", "w2", "b2"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def build(weights: Weights, *flags: dt.BuilderFlag) -> dt.Engine:
    config = dt.BuilderConfig()
    for flag in flags:
        config.set_flag(flag)
    return dt.compile(make_model(weights), config=config)


def refit(engine: dt.Engine, weights: Weights) -> None:
    """Put all weights in, together."""
    refitter = dt.Refitter(engine)
    for name in refitter.get_all_weights():
        refitter.set_named_weights(name, weights[name])
    assert refitter.refit_cuda_engine()


def expect(weights: Weights, x: np.ndarray) -> np.ndarray:
    return np.maximum(x @ weights["w1"] + weights["b1"], 0) @ weights["w2"] + weights["b2"]


def main() -> None:
    old, new = make_weights(1), make_weights(2)
    x = np.random.default_rng(0).random((8, 64), np.float32)

    engine = build(old, dt.BuilderFlag.REFIT)
    np.testing.assert_allclose(engine(x), expect(old, x), rtol=1e-4, atol=1e-5)
    refit(engine, new)
    np.testing.assert_array_equal(engine(x), build(new, dt.BuilderFlag.REFIT)(x))
    print("refitted: equal to a fresh build with the new weights")

    whole, stripped = engine.serialize(), build(old, dt.BuilderFlag.REFIT, dt.BuilderFlag.STRIP_PLAN).serialize()
    print(f"plan: {len(whole)} bytes; stripped: {len(stripped)} bytes")
    assert len(stripped) < len(whole) // 4
    engine = dt.Runtime().deserialize_cuda_engine(stripped)
    print("missing in the stripped plan:", ", ".join(dt.Refitter(engine).get_missing_weights()))
    try:
        engine(x)
    except dt.UsageError as error:
        print(error)
    else:
        raise AssertionError("an engine without weights ran")
    refit(engine, new)
    np.testing.assert_allclose(engine(x), expect(new, x), rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    main()
