"""Four well-known networks as ONNX files, with random weights: ResNet-50, MobileNetV3-Large, BERT-base and ViT-B/16.

They are written node by node, as exporters write them: convolutions with their batch normalisation beside them, GELU
and the normalisation of BERT in their parts, attention as Reshape, Transpose and MatMul. The same seed gives the same
file. ``model_file("resnet50")`` writes it once, to ``build/models``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["MODELS", "model_file"]

FOLDER = Path(__file__).resolve().parent.parent / "build" / "models"
OPSET = 17
Array = np.ndarray[Any, Any]


class _Writer:
    """Nodes and weights of one graph; every method adds nodes and returns the name of the result."""

    def __init__(self, seed: int) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self._rng = np.random.default_rng(seed)

    def weight(self, *shape: int, scale: float | None = None) -> str:
        """Random numbers; by default of a size that keeps the variance of what they are multiplied with."""
        fan_in = math.prod(shape[1:]) if len(shape) > 1 else shape[0]
        spread = 1 / math.sqrt(fan_in) if scale is None else scale
        return self.constant(self._rng.standard_normal(shape, np.float32) * np.float32(spread))

    def constant(self, array: Any, dtype: Any = np.float32) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [f"{name}_out"], name=name, **attributes))
        return f"{name}_out"

    def conv(self, x: str, channels: int, out: int, kernel: int, *, stride: int = 1, groups: int = 1) -> str:
        """A convolution without bias, and its batch normalisation."""
        weights = self.weight(out, channels // groups, kernel, kernel)
        sizes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4, "group": groups}
        return self._normalise(self.add("Conv", x, weights, **sizes), out)

    def _normalise(self, x: str, channels: int) -> str:
        scale, shift = self.constant(np.ones(channels)), self.constant(np.zeros(channels))
        mean, variance = self.weight(channels, scale=0.1), self.constant(np.ones(channels))
        return self.add("BatchNormalization", x, scale, shift, mean, variance, epsilon=1e-5)

    def linear(self, x: str, size: int, out: int) -> str:
        """A product with a matrix and a bias, as two nodes."""
        product = self.add("MatMul", x, self.constant(self._rng.standard_normal((size, out), np.float32) / size**0.5))
        return self.add("Add", self.weight(out, scale=0.02), product)

    def gelu(self, x: str) -> str:
        half = self.add("Erf", self.add("Div", x, self.constant(math.sqrt(2))))
        return self.add("Mul", self.add("Mul", x, self.add("Add", half, self.constant(1))), self.constant(0.5))

    def layer_norm(self, x: str, size: int, epsilon: float) -> str:
        """The operator, as exporters write it from opset 17 on."""
        scale, shift = self.constant(np.ones(size)), self.constant(np.zeros(size))
        return self.add("LayerNormalization", x, scale, shift, axis=-1, epsilon=epsilon)

    def layer_norm_parts(self, x: str, size: int, epsilon: float) -> str:
        """The same in its parts, as they were written before."""
        centred = self.add("Sub", x, self.add("ReduceMean", x, axes=[-1]))
        variance = self.add("ReduceMean", self.add("Pow", centred, self.constant(2)), axes=[-1])
        deviation = self.add("Sqrt", self.add("Add", variance, self.constant(epsilon)))
        scaled = self.add("Mul", self.add("Div", centred, deviation), self.constant(np.ones(size)))
        return self.add("Add", scaled, self.constant(np.zeros(size)))

    def attention(self, x: str, size: int, heads: int, mask: str | None = None) -> str:
        """Self-attention over (batch, tokens, size)."""
        q, k, v = (self.linear(x, size, size) for _ in range(3))
        split = self.constant([0, 0, heads, size // heads], np.int64)
        q, v = (self.add("Transpose", self.add("Reshape", t, split), perm=[0, 2, 1, 3]) for t in (q, v))
        k = self.add("Transpose", self.add("Reshape", k, split), perm=[0, 2, 3, 1])
        scores = self.add("Div", self.add("MatMul", q, k), self.constant(math.sqrt(size // heads)))
        if mask is not None:
            scores = self.add("Add", scores, mask)
        mixed = self.add("MatMul", self.add("Softmax", scores, axis=-1), v)
        joined = self.add("Reshape", self.add("Transpose", mixed, perm=[0, 2, 1, 3]), self._ints(0, 0, size))
        return self.linear(joined, size, size)

    def _ints(self, *numbers: int) -> str:
        return self.constant(numbers, np.int64)

    def finish(self, name: str, inputs: Sequence[Any], output: str, dims: Sequence[Any]) -> Any:
        self.nodes[-1].output[0] = "output"
        for node in self.nodes:
            node.input[:] = ["output" if used == output else used for used in node.input]
        ports = [helper.make_tensor_value_info("output", TensorProto.FLOAT, dims)]
        graph = helper.make_graph(self.nodes, name, list(inputs), ports, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


def _image() -> Any:
    return helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 224, 224])


def _resnet50() -> Any:
    w = _Writer(50)
    x = w.add("Relu", w.conv("image", 3, 64, 7, stride=2))
    x = w.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for stage, count in enumerate((3, 4, 6, 3)):
        width = 64 * 2**stage
        for block in range(count):
            stride = 2 if stage and not block else 1
            y = w.add("Relu", w.conv(x, channels, width, 1))
            y = w.add("Relu", w.conv(y, width, width, 3, stride=stride))
            y = w.conv(y, width, 4 * width, 1)
            short = x if block else w.conv(x, channels, 4 * width, 1, stride=stride)
            x = w.add("Relu", w.add("Add", y, short))
            channels = 4 * width
    x = w.add("Flatten", w.add("GlobalAveragePool", x), axis=1)
    x = w.add("Gemm", x, w.weight(1000, channels), w.weight(1000, scale=0.02), transB=1)
    return w.finish("resnet50", [_image()], x, ["batch", 1000])


_MOBILE_BLOCKS = [
    # kernel, expanded, out, squeezed to a quarter, activation, stride
    (3, 16, 16, False, "Relu", 1),
    (3, 64, 24, False, "Relu", 2),
    (3, 72, 24, False, "Relu", 1),
    (5, 72, 40, True, "Relu", 2),
    (5, 120, 40, True, "Relu", 1),
    (5, 120, 40, True, "Relu", 1),
    (3, 240, 80, False, "HardSwish", 2),
    (3, 200, 80, False, "HardSwish", 1),
    (3, 184, 80, False, "HardSwish", 1),
    (3, 184, 80, False, "HardSwish", 1),
    (3, 480, 112, True, "HardSwish", 1),
    (3, 672, 112, True, "HardSwish", 1),
    (5, 672, 160, True, "HardSwish", 2),
    (5, 960, 160, True, "HardSwish", 1),
    (5, 960, 160, True, "HardSwish", 1),
]


def _squeeze(w: _Writer, x: str, channels: int) -> str:
    """Weigh channels by what they are on average."""
    inner = -(-channels // 4 // 8) * 8
    y = w.add("GlobalAveragePool", x)
    y = w.add("Relu", w.add("Conv", y, w.weight(inner, channels, 1, 1), w.weight(inner, scale=0.02)))
    y = w.add("Conv", y, w.weight(channels, inner, 1, 1), w.weight(channels, scale=0.02))
    return w.add("Mul", x, w.add("HardSigmoid", y, alpha=1 / 6, beta=0.5))


def _mobilenet_v3() -> Any:
    w = _Writer(3)
    x = w.add("HardSwish", w.conv("image", 3, 16, 3, stride=2))
    channels = 16
    for kernel, expanded, out, squeezes, activation, stride in _MOBILE_BLOCKS:
        y = x if expanded == channels else w.add(activation, w.conv(x, channels, expanded, 1))
        y = w.add(activation, w.conv(y, expanded, expanded, kernel, stride=stride, groups=expanded))
        y = w.conv(_squeeze(w, y, expanded) if squeezes else y, expanded, out, 1)
        x = w.add("Add", y, x) if stride == 1 and out == channels else y
        channels = out
    x = w.add("HardSwish", w.conv(x, channels, 960, 1))
    x = w.add("Flatten", w.add("GlobalAveragePool", x), axis=1)
    x = w.add("HardSwish", w.add("Gemm", x, w.weight(1280, 960), w.weight(1280, scale=0.02), transB=1))
    x = w.add("Gemm", x, w.weight(1000, 1280), w.weight(1000, scale=0.02), transB=1)
    return w.finish("mobilenet_v3", [_image()], x, ["batch", 1000])


def _bert_base() -> Any:
    w, size = _Writer(12), 768
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"]) for name in names]
    mask = w.add("Cast", w.add("Unsqueeze", "attention_mask", w.constant([1, 2], np.int64)), to=TensorProto.FLOAT)
    mask = w.add("Mul", w.add("Sub", w.constant(1), mask), w.constant(np.finfo(np.float32).min))
    tokens = w.add("Gather", w.add("Shape", "input_ids"), w.constant(1, np.int64), axis=0)
    places = w.add("Slice", w.constant(np.arange(512)[None], np.int64), *_slice_to(w, tokens))
    x = w.add("Gather", w.weight(30522, size, scale=0.02), "input_ids")
    x = w.add("Add", x, w.add("Gather", w.weight(2, size, scale=0.02), "token_type_ids"))
    x = w.add("Add", x, w.add("Gather", w.weight(512, size, scale=0.02), places))
    x = w.layer_norm_parts(x, size, 1e-12)
    for _ in range(12):
        x = w.layer_norm_parts(w.add("Add", w.attention(x, size, 12, mask), x), size, 1e-12)
        y = w.linear(w.gelu(w.linear(x, size, 4 * size)), 4 * size, size)
        x = w.layer_norm_parts(w.add("Add", y, x), size, 1e-12)
    return w.finish("bert_base", inputs, x, ["batch", "tokens", size])


def _slice_to(w: _Writer, end: str) -> list[str]:
    starts, axes = w.constant([0], np.int64), w.constant([1], np.int64)
    return [starts, w.add("Unsqueeze", end, w.constant([0], np.int64)), axes]


def _vit_b16() -> Any:
    w, size = _Writer(16), 768
    x = w.add("Conv", "image", w.weight(size, 3, 16, 16), w.weight(size, scale=0.02), strides=[16, 16])
    x = w.add("Transpose", w.add("Reshape", x, w.constant([0, size, 196], np.int64)), perm=[0, 2, 1])
    batch = w.add("Slice", w.add("Shape", "image"), w.constant([0], np.int64), w.constant([1], np.int64))
    target = w.add("Concat", batch, w.constant([1, size], np.int64), axis=0)
    first = w.add("Expand", w.weight(1, 1, size, scale=0.02), target)
    x = w.add("Add", w.add("Concat", first, x, axis=1), w.weight(1, 197, size, scale=0.02))
    for _ in range(12):
        x = w.add("Add", w.attention(w.layer_norm(x, size, 1e-6), size, 12), x)
        y = w.gelu(w.linear(w.layer_norm(x, size, 1e-6), size, 4 * size))
        x = w.add("Add", w.linear(y, 4 * size, size), x)
    x = w.add("Gather", w.layer_norm(x, size, 1e-6), w.constant(0, np.int64), axis=1)
    x = w.add("Gemm", x, w.weight(1000, size), w.weight(1000, scale=0.02), transB=1)
    return w.finish("vit_b16", [_image()], x, ["batch", 1000])


MODELS: dict[str, Callable[[], Any]] = {
    "resnet50": _resnet50,
    "mobilenet_v3": _mobilenet_v3,
    "bert_base": _bert_base,
    "vit_b16": _vit_b16,
}


def model_file(name: str) -> Path:
    """The file of a model, written when it is not there yet."""
    path = FOLDER / f"{name}.onnx"
    if not path.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        onnx.save(MODELS[name](), temporary)
        temporary.replace(path)
    return path


if __name__ == "__main__":
    for wanted in sys.argv[1:] or MODELS:
        print(model_file(wanted))
