"""Small models of the kind that large ones are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_TYPES = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}


class _Graph:
    """Nodes one after the other, each named by its number."""

    def __init__(self, dtype: str, seed: int) -> None:
        self.dtype = np.dtype(dtype)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self._rng = np.random.default_rng(seed)

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def weight(self, *shape: int, scale: float = 0.05, shift: float = 0.0) -> str:
        array = (self._rng.standard_normal(shape) * scale + shift).astype(self.dtype)
        return self.constant(array)

    def constant(self, array: Any) -> str:
        name = f"w_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def model(self, shape: tuple[int, ...], output: str) -> onnx.ModelProto:
        kind = _TYPES[self.dtype.name]
        graph = helper.make_graph(
            self.nodes,
            "model",
            [helper.make_tensor_value_info("x", kind, shape)],
            [helper.make_tensor_value_info(output, kind, shape)],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
        model.ir_version = 10
        return model


def make_mlp(dtype: str = "float32", rows: int = 64, width: int = 256, depth: int = 3) -> onnx.ModelProto:
    """Products with bias and Relu."""
    graph, x = _Graph(dtype, seed=3), "x"
    for _ in range(depth):
        x = graph.add("Gemm", x, graph.weight(width, width), graph.weight(width))
        x = graph.add("Relu", x)
    return graph.model((rows, width), x)


def make_block(
    dtype: str = "float32", batch: int = 2, length: int = 32, width: int = 64, heads: int = 4, depth: int = 1
) -> onnx.ModelProto:
    """Blocks of a transformer: attention and a feed-forward part, each with a residual and a normalization."""
    graph, x = _Graph(dtype, seed=4), "x"
    for _ in range(depth):
        x = _add_block(graph, x, batch, length, width, heads)
    return graph.model((batch, length, width), x)


def _add_block(graph: _Graph, x: str, batch: int, length: int, width: int, heads: int) -> str:
    deep = width // heads
    parts = [_project(graph, x, width, width) for _ in range(3)]
    split = graph.constant(np.array([batch, length, heads, deep], np.int64))
    query, key, value = (
        graph.add("Transpose", graph.add("Reshape", part, split), perm=perm)
        for part, perm in zip(parts, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True)
    )
    scale = graph.constant(np.array(deep**-0.5, graph.dtype))
    scores = graph.add("Mul", graph.add("MatMul", query, key), scale)
    mixed = graph.add("MatMul", graph.add("Softmax", scores, axis=-1), value)
    whole = graph.constant(np.array([batch, length, width], np.int64))
    joined = graph.add("Reshape", graph.add("Transpose", mixed, perm=[0, 2, 1, 3]), whole)
    x = _normalize(graph, graph.add("Add", x, _project(graph, joined, width, width)), width)
    hidden = graph.add("Gelu", _project(graph, x, width, 4 * width))
    return _normalize(graph, graph.add("Add", x, _project(graph, hidden, 4 * width, width)), width)


def _project(graph: _Graph, x: str, inner: int, columns: int) -> str:
    return graph.add("Add", graph.add("MatMul", x, graph.weight(inner, columns)), graph.weight(columns))


def _normalize(graph: _Graph, x: str, width: int) -> str:
    return graph.add("LayerNormalization", x, graph.weight(width, shift=1.0), graph.weight(width), axis=-1)
