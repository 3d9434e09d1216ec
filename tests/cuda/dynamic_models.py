"""Models whose shapes vary, written as torch exports them: shapes are taken apart and put together at run time."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_TYPES = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}
_LEAST = {"float32": -3.4e38, "float16": -65504.0}


class _Graph:
    def __init__(self, dtype: str, seed: int) -> None:
        self.dtype = np.dtype(dtype)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self._rng = np.random.default_rng(seed)

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def weight(self, *shape: int, scale: float = 0.2, shift: float = 0.0) -> str:
        return self.constant((self._rng.standard_normal(shape) * scale + shift).astype(self.dtype))

    def constant(self, array: Any) -> str:
        name = f"w_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def number(self, value: float) -> str:
        return self.constant(np.array(value, self.dtype))

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def size(self, x: str, axis: int) -> str:
        """One size of a tensor, as torch writes it."""
        return self.add("Gather", self.add("Shape", x), self.constant(np.array(axis, np.int64)), axis=0)

    def shape(self, *parts: str | int) -> str:
        """Sizes and numbers as a shape."""
        zero = self.ints(0)
        each = [self.ints(part) if isinstance(part, int) else self.add("Unsqueeze", part, zero) for part in parts]
        return self.add("Concat", *each, axis=0)

    def model(self, inputs: dict[str, tuple[int, tuple[Any, ...]]], outputs: dict[str, tuple[Any, ...]]) -> Any:
        kind = _TYPES[self.dtype.name]
        graph = helper.make_graph(
            self.nodes,
            "model",
            [helper.make_tensor_value_info(name, dtype, shape) for name, (dtype, shape) in inputs.items()],
            [helper.make_tensor_value_info(name, kind, shape) for name, shape in outputs.items()],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 10
        return model


def make_bert(
    dtype: str = "float32", width: int = 16, heads: int = 2, depth: int = 1, longest: int = 64, words: int = 30
) -> onnx.ModelProto:
    """A small BERT over any batch and length: embeddings, a mask, blocks, and a pooler."""
    g = _Graph(dtype, seed=6)
    x = _embed(g, width, longest, words)
    mask = _make_mask(g)
    for _ in range(depth):
        x = _add_block(g, x, mask, width, heads)
    first = g.add("Gather", x, g.constant(np.array(0, np.int64)), axis=1)
    pooled = g.add("Tanh", g.add("Gemm", first, g.weight(width, width), g.weight(width), transB=1))
    inputs = dict.fromkeys(("ids", "mask"), (TensorProto.INT64, ("batch", "length")))
    return g.model(inputs, {x: ("batch", "length", width), pooled: ("batch", width)})


def _embed(g: _Graph, width: int, longest: int, words: int) -> str:
    numbers = g.constant(np.arange(longest, dtype=np.int64)[None])
    end = g.add("Unsqueeze", g.size("ids", 1), g.ints(0))
    places = g.add("Slice", numbers, g.ints(0), end, g.ints(1), g.ints(1))
    words_of = g.add("Gather", g.weight(words, width), "ids", axis=0)
    total = g.add("Add", words_of, g.add("Gather", g.weight(longest, width), places, axis=0))
    return _normalize(g, total, width)


def _make_mask(g: _Graph) -> str:
    """(batch, 1, length, length) to be added to scores, stretched as torch writes an expansion."""
    wide = g.add("Unsqueeze", g.add("Unsqueeze", "mask", g.ints(1)), g.ints(2))
    batch, length = g.size("mask", 0), g.size("mask", 1)
    shape = g.shape(batch, 1, length, length)
    ones = g.add("ConstantOfShape", g.ints(4), value=helper.make_tensor("value", TensorProto.INT64, [1], [1]))
    is_open = g.add("Equal", shape, g.ints(-1, -1, -1, -1))
    whole = g.add("Expand", wide, g.add("Where", is_open, ones, shape))
    hidden = g.add("Sub", g.number(1.0), g.add("Cast", whole, to=_TYPES[g.dtype.name]))
    return g.add("Where", g.add("Cast", hidden, to=TensorProto.BOOL), g.number(_LEAST[g.dtype.name]), hidden)


def _normalize(g: _Graph, x: str, width: int) -> str:
    return g.add("LayerNormalization", x, g.weight(width, shift=1.0), g.weight(width), axis=-1)


def _project(g: _Graph, x: str, inner: int, outer: int) -> str:
    return g.add("Add", g.add("MatMul", x, g.weight(inner, outer)), g.weight(outer))


def _add_block(g: _Graph, x: str, mask: str, width: int, heads: int) -> str:
    deep = width // heads

    def split(part: str, perm: list[int]) -> str:
        shape = g.shape(g.size(part, 0), g.size(part, 1), heads, deep)
        return g.add("Transpose", g.add("Reshape", part, shape), perm=perm)

    query, key, value = (_project(g, x, width, width) for _ in range(3))
    product = g.add("MatMul", split(query, [0, 2, 1, 3]), split(key, [0, 2, 3, 1]))
    scores = g.add("Add", g.add("Div", product, g.number(deep**0.5)), mask)
    mixed = g.add("MatMul", g.add("Softmax", scores, axis=-1), split(value, [0, 2, 1, 3]))
    joined = g.add("Transpose", mixed, perm=[0, 2, 1, 3])
    flat = g.add("Reshape", joined, g.shape(g.size(joined, 0), g.size(joined, 1), width))
    x = _normalize(g, g.add("Add", x, _project(g, flat, width, width)), width)
    inner = _project(g, x, width, 2 * width)
    erf = g.add("Erf", g.add("Div", inner, g.number(2**0.5)))
    gelu = g.add("Mul", g.add("Mul", inner, g.add("Add", erf, g.number(1.0))), g.number(0.5))
    return _normalize(g, g.add("Add", x, _project(g, gelu, 2 * width, width)), width)


def make_cnn(dtype: str = "float32", size: int = 16, width: int = 8) -> onnx.ModelProto:
    """A small network for images over any batch: plain and depthwise convolutions, pooling, and a classifier."""
    g = _Graph(dtype, seed=7)
    stem = g.add("Conv", "x", g.weight(width, 3, 3, 3), g.weight(width), pads=[1, 1, 1, 1], strides=[2, 2])
    x = g.add("Relu", stem)
    deep = g.add("Conv", x, g.weight(width, 1, 3, 3), pads=[1, 1, 1, 1], group=width)
    narrow = g.add("Conv", g.add("HardSwish", deep), g.weight(width, width, 1, 1), g.weight(width))
    x = g.add("Add", x, narrow)
    x = g.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = g.add("Relu", g.add("Conv", x, g.weight(2 * width, width, 3, 3), g.weight(2 * width), pads=[1, 1, 1, 1]))
    pooled = g.add("GlobalAveragePool", x)
    flat = g.add("Reshape", pooled, g.shape(g.size(pooled, 0), -1))
    y = g.add("Softmax", g.add("Gemm", flat, g.weight(10, 2 * width), g.weight(10), transB=1), axis=-1)
    return g.model({"x": (_TYPES[dtype], ("batch", 3, size, size))}, {y: ("batch", 10)})
