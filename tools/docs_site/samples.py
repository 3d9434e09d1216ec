"""The small models and the layer that the pages of commands show."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from tools.docs_site.layout import ROOT

__all__ = ["write_samples"]

_LAYER = """import numpy as np
import dovetail as dt


@dt.layer("MovingAverage", tactics=("sums", "windows"), shape=lambda x, *, window: (x[0], x[1] - window + 1))
def moving_average(x, *, window: int, tactic: str):
    if tactic == "windows":
        return np.lib.stride_tricks.sliding_window_view(x, window, axis=1).mean(axis=-1)
    sums = np.cumsum(np.pad(x, ((0, 0), (1, 0))), axis=1, dtype=np.float64)
    return (sums[:, window:] - sums[:, :-window]) / window
"""

_V2_PLUGIN = """import tensorrt as trt
from dovetail.plugin import as_array


class Double(trt.IPluginV2DynamicExt):
    def __init__(self):
        trt.IPluginV2DynamicExt.__init__(self)
        self.plugin_type, self.plugin_version, self.num_outputs = "Double", "1", 1

    def get_output_datatype(self, index, input_types):
        return input_types[0]

    def get_output_dimensions(self, output_index, inputs, exprBuilder):
        return inputs[0]

    def supports_format_combination(self, pos, in_out, num_inputs):
        return in_out[pos].type == trt.float32 and in_out[pos].format == trt.TensorFormat.LINEAR

    def configure_plugin(self, inputs, outputs):
        pass

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        as_array(outputs[0], output_desc[0])[...] = 2 * as_array(inputs[0], input_desc[0])

    def serialize(self):
        return b""

    def clone(self):
        return Double()
"""


def write_samples(folder: Path) -> None:
    """Write models, weights and inputs, plugins, and a folder of models to serve."""
    _write_model(folder)
    shutil.copytree(
        ROOT / "examples/models/colours", folder / "models/colours", ignore=shutil.ignore_patterns("*.plan*")
    )
    np.save(folder / "images.npy", np.random.default_rng(1).uniform(0, 1, (20, 3, 32, 32)).astype(np.float32))
    (folder / "double.py").write_text(_V2_PLUGIN, encoding="utf-8")
    (folder / "moving_average.py").write_text(_LAYER, encoding="utf-8")
    _write_averaged(folder)


def _write_model(folder: Path) -> None:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    shapes = {"w1": (16, 3, 3, 3), "w2": (32, 16, 3, 3), "w3": (32, 10), "b3": (10,)}
    weights = {name: rng.normal(0, 0.2, shape).astype(np.float32) for name, shape in shapes.items()}
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["c1"], "stem", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], "stem/relu"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], "body", pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c2"], ["r2"], "body/relu"),
        helper.make_node("GlobalAveragePool", ["r2"], ["pool"], "head/pool"),
        helper.make_node("Flatten", ["pool"], ["flat"], "head/flatten"),
        helper.make_node("Gemm", ["flat", "w3", "b3"], ["scores"], "head/gemm"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 32, 32])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    onnx.save(model, folder / "model.onnx")
    np.savez(folder / "weights.npz", **{name: 2 * array for name, array in weights.items()})


def _write_averaged(folder: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        [helper.make_node("MovingAverage", ["x"], ["y"], "average", domain="acme", window=5)],
        "averaged",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", "columns"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", "left"])],
    )
    versions = [helper.make_opsetid("", 21), helper.make_opsetid("acme", 1)]
    onnx.save(helper.make_model(graph, opset_imports=versions), folder / "averaged.onnx")
