# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy", "onnx"]
# ///
"""Writes colours/1/model.onnx: the nearest of eight named colours, as probabilities.

The squared distance of a colour x to a named colour c is |x|^2 - 2 x.c + |c|^2. The first part is the same for every c,
so a matrix, a vector and a softmax find the nearest.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

NAMES = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
SHARPNESS = 4.0


def make_model() -> onnx.ModelProto:
    """A model from rows of red, green and blue, each 0 to 1, to a probability for each name."""
    colours = np.array([[(number >> bit) & 1 for bit in range(3)] for number in range(8)], np.float32)
    weights = {"weights": 2 * SHARPNESS * colours.T, "bias": -SHARPNESS * (colours**2).sum(axis=1)}
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["rgb", "weights", "bias"], ["scores"]),
            helper.make_node("Softmax", ["scores"], ["p"]),
        ],
        "colours",
        [helper.make_tensor_value_info("rgb", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("p", TensorProto.FLOAT, ["n", 8])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
        doc_string=f"p[i] is the probability of {', '.join(NAMES)}",
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def main() -> None:
    model = make_model()
    onnx.checker.check_model(model, full_check=True)
    target = Path(__file__).parent / "colours" / "1" / "model.onnx"
    target.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, target)
    assert target.stat().st_size < 1000
    print(f"wrote {target.parent.parent.name}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
