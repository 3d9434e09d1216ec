"""Small models whose types are changed: products, a network for images, a transformer block, a reader of lines."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["ModelWriter", "make_block", "make_image_network", "make_line_reader", "make_perceptron", "read_lines"]

Array = npt.NDArray[Any]


class ModelWriter:
    """Writes nodes one after the other, each named as its output."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def constant(self, name: str, array: Any) -> str:
        self.initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weights(self, name: str, *shape: int, size: float = 1.0) -> str:
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else shape[0]
        return self.constant(name, (self.rng.standard_normal(shape) * size / np.sqrt(fan)).astype(np.float32))

    def add(self, op: str, inputs: list[str], name: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def conv(self, source: str, name: str, channels: int, filters: int, *, size: int = 3, **attributes: Any) -> str:
        group = attributes.get("group", 1)
        inputs = [
            source,
            self.weights(f"{name}_w", filters, channels // group, size, size, size=1.5),
            self.weights(f"{name}_b", filters, size=0.1),
        ]
        return self.add("Conv", inputs, name, pads=[size // 2] * 4, **attributes)

    def finish(
        self,
        inputs: dict[str, list[Any]],
        outputs: dict[str, list[Any]],
        opset: int = 18,
        domains: tuple[str, ...] = (),
    ) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "network",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
            self.initializers,
        )
        opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def make_perceptron(size: float = 1.0) -> onnx.ModelProto:
    """Two products around a mean, which is a sensitive layer."""
    model = ModelWriter()
    h = model.add("MatMul", ["x", model.weights("w1", 32, 48, size=size)], "fc1")
    r = model.add("Relu", [h], "relu")
    m = model.add("ReduceMean", [r, model.constant("axes", np.array([1]))], "mean")
    d = model.add("Sub", [r, m], "center")
    o = model.add("MatMul", [d, model.weights("w2", 48, 8)], "head/fc2")
    model.add("Add", [o, model.weights("b", 8)], "y")
    return model.finish({"x": ["n", 32]}, {"y": ["n", 8]})


def make_image_network(opset: int = 18) -> onnx.ModelProto:
    """Convolutions, one by channel, a residual sum, pools, an activation that 8 bits are not for, and a head."""
    m = ModelWriter(1)
    x = m.add("Relu", [m.conv("x", "c1", 3, 16, strides=[2, 2])], "r1")
    a = m.add("Relu", [m.conv(x, "c2", 16, 16)], "r2")
    s = m.add("Relu", [m.add("Add", [m.conv(a, "c3", 16, 16, group=16), x], "sum")], "r3")
    p = m.add("MaxPool", [s], "pool", kernel_shape=[2, 2], strides=[2, 2])
    t = m.add("Tanh", [m.conv(p, "c4", 16, 32, size=1)], "tanh")
    b = m.add("Relu", [m.conv(t, "c5", 32, 32)], "r5")
    f = m.add("Flatten", [m.add("GlobalAveragePool", [b], "gap")], "flat")
    m.nodes.append(
        helper.make_node("Gemm", [f, m.weights("fc_w", 10, 32), m.weights("fc_b", 10)], ["y"], name="head/fc", transB=1)
    )
    return m.finish({"x": ["n", 3, 24, 24]}, {"y": ["n", 10]}, opset)


def make_block(width: int = 32, heads: int = 4, length: int = 12) -> onnx.ModelProto:
    """A block of a transformer, with its normalization written out."""
    m = ModelWriter(2)
    each = width // heads
    normal = _normalize(m, "x", width)
    parts = []
    for name in ("q", "k", "v"):
        p = m.add("MatMul", [normal, m.weights(f"w_{name}", width, width)], f"{name}_product")
        r = m.add("Reshape", [p, m.constant(f"{name}_shape", np.array([0, length, heads, each]))], f"{name}_split")
        parts.append(m.add("Transpose", [r], f"{name}_heads", perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]))
    scores = m.add("MatMul", parts[:2], "scores")
    scaled = m.add("Mul", [scores, m.constant("scale", np.float32(each**-0.5))], "scaled")
    mixed = m.add("MatMul", [m.add("Softmax", [scaled], "probabilities", axis=-1), parts[2]], "mixed")
    t = m.add("Transpose", [mixed], "back", perm=[0, 2, 1, 3])
    joined = m.add("Reshape", [t, m.constant("joined_shape", np.array([0, length, width]))], "joined")
    o = m.add("MatMul", [joined, m.weights("w_o", width, width)], "out")
    m.add("Add", [o, "x"], "y")
    return m.finish({"x": ["n", length, width]}, {"y": ["n", length, width]}, 18)


def _normalize(m: ModelWriter, x: str, width: int) -> str:
    axes = m.constant("ln_axes", np.array([-1]))
    d = m.add("Sub", [x, m.add("ReduceMean", [x, axes], "ln_mean")], "ln_center")
    v = m.add("ReduceMean", [m.add("Pow", [d, m.constant("two", np.float32(2))], "ln_square"), axes], "ln_variance")
    e = m.add("Add", [v, m.constant("eps", np.float32(1e-5))], "ln_eps")
    n = m.add("Div", [d, m.add("Sqrt", [e], "ln_root")], "ln_div")
    g = m.add("Mul", [n, m.constant("gamma", np.ones(width, np.float32))], "ln_gamma")
    return m.add("Add", [g, m.constant("beta", np.zeros(width, np.float32))], "ln_beta")


# a reader of lines of glyphs

_GLYPHS = 12
_CELL = 8


def _draw_lines(rng: np.random.Generator, count: int, length: int) -> tuple[Array, Array]:
    """Lines of glyphs, each a pattern of its own, moved, with noise; and which glyphs they are."""
    shapes = np.random.default_rng(99).random((_GLYPHS, _CELL, _CELL)) > 0.5
    labels = rng.integers(0, _GLYPHS, (count, length))
    images = np.concatenate(np.moveaxis(shapes[labels], 1, 0), axis=2).astype(np.float32)
    return (images * rng.uniform(0.6, 1.0, (count, 1, 1)) + rng.normal(0, 0.15, images.shape)).astype(np.float32)[
        :, None
    ], labels


def make_line_reader(length: int = 10) -> tuple[onnx.ModelProto, list[Array], Array, Array]:
    """A model that reads lines, images to calibrate with, and other images with what they say.

    Its convolutions are random features; its head is fitted by least squares, so that it does read.
    """
    m = ModelWriter(3)
    a = m.add("Relu", [m.conv("x", "c1", 1, 24, strides=[2, 2])], "r1")
    b = m.add("Relu", [m.conv(a, "c2", 24, 48, strides=[2, 2])], "r2")
    t = m.add("Transpose", [b], "columns", perm=[0, 3, 2, 1])
    f = m.add("Reshape", [t, m.constant("shape", np.array([0, length, -1]))], "features")
    features = m.finish({"x": ["n", 1, _CELL, _CELL * length]}, {"features": ["n", length, 192]}, 18)
    images, labels = _draw_lines(m.rng, 400, length)
    m.add("MatMul", [f, m.constant("head_w", _fit_head(features, images, labels))], "y")
    model = m.finish({"x": ["n", 1, _CELL, _CELL * length]}, {"y": ["n", length, _GLYPHS]}, 18)
    seen, unseen = _draw_lines(m.rng, 32, length)[0], _draw_lines(m.rng, 200, length)
    return model, [seen[i : i + 8] for i in range(0, 32, 8)], *unseen


def _fit_head(features: onnx.ModelProto, images: Array, labels: Array) -> Array:
    import onnxruntime

    session = onnxruntime.InferenceSession(features.SerializeToString())
    x = session.run(None, {"x": images})[0].reshape(labels.size, -1)
    wanted = np.eye(_GLYPHS, dtype=np.float32)[labels.reshape(-1)]
    ridge = x.T @ x + 1e-1 * np.eye(x.shape[1], dtype=np.float32)
    return np.asarray(np.linalg.solve(ridge, x.T @ wanted), np.float32)


def read_lines(scores: Array) -> Array:
    """The glyphs that scores say."""
    return np.asarray(scores.argmax(axis=-1))
