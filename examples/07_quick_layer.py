# /// script
# requires-python = ">=3.11"
# dependencies = ["dovetail-engine[all]"]
# ///
"""A custom layer in a few lines: a function on arrays becomes an operator that an ONNX model can use.

The decorator makes a plugin and its creator under the same contract as the long form, so all else is the same: shapes
may vary, the builder times both tactics, the attribute comes from the ONNX node and is stored in the plan. For
data-dependent shapes, workspace or aliased memory, write the class (01_pad.py and those after it).
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

import dovetail as dt

# The whole custom layer: positional parameters are inputs, keyword ones are attributes, ``tactic`` is the builder's.


@dt.layer("MovingAverage", tactics=("sums", "windows"), shape=lambda x, *, window: (x[0], x[1] - window + 1))
def moving_average(x, *, window: int, tactic: str):
    if tactic == "windows":
        return np.lib.stride_tricks.sliding_window_view(x, window, axis=1).mean(axis=-1)
    sums = np.cumsum(np.pad(x, ((0, 0), (1, 0))), axis=1, dtype=np.float64)
    return (sums[:, window:] - sums[:, :-window]) / window


def make_model() -> onnx.ModelProto:
    """Relu, then an operator that no engine knows."""
    nodes = [
        helper.make_node("Relu", ["signal"], ["positive"]),
        helper.make_node("MovingAverage", ["positive"], ["smooth"], domain="acme", window=5),
    ]
    graph = helper.make_graph(
        nodes,
        "smoothing",
        [helper.make_tensor_value_info("signal", TensorProto.FLOAT, ["batch", "time"])],
        [helper.make_tensor_value_info("smooth", TensorProto.FLOAT, ["batch", None])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("acme", 1)])


def main() -> None:
    engine = dt.compile(make_model(), shapes={"signal": ((1, 8), (4, 256), (16, 4096))})
    print(engine)
    for way in engine.manifest.tuning[0].candidates:
        name = moving_average.tactics[way.tactic - 1]
        print(f"  {name:8} {way.time_us:8.1f} us  {'<- chosen' if way.chosen else ''}")

    for shape in ((1, 8), (4, 256), (3, 1000)):
        signal = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        expected = np.stack([np.convolve(row, np.full(5, 0.2), "valid") for row in np.maximum(signal, 0)])
        np.testing.assert_allclose(engine(signal), expected, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    main()
