"""Models of operators in a random order over small shapes: what a planner meets that nobody thought of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["make_random_model"]

_MOST_ELEMENTS: Final = 4096
_UNARY: Final = ("Abs", "Erf", "Neg", "Relu", "Sigmoid", "Softplus", "Tanh")
_BINARY: Final = ("Add", "Max", "Min", "Mul", "Sub")
_REDUCTIONS: Final = ("ReduceL1", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum")


def make_random_model(seed: int, num_nodes: int) -> tuple[onnx.ModelProto, list[Any]]:
    """A model with inputs for it; the same seed gives the same."""
    graph = _Graph(np.random.default_rng(seed))
    for _ in range(num_nodes):
        graph.add_some()
    return graph.finish()


class _Graph:
    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._inputs = {f"x{number}": self._draw_shape() for number in range(2)}
        self._shapes: dict[str, tuple[int, ...]] = dict(self._inputs)
        self._read: set[str] = set()

    def add_some(self) -> None:
        """Add one operator over what is there."""
        adders: list[Callable[[], None]] = [
            self._map, self._combine, self._transpose, self._reshape, self._slice, self._pad, self._concat,
            self._reduce, self._softmax, self._multiply, self._gather, self._select, self._round, self._repeat,
            self._accumulate,
        ]  # fmt: skip
        adders[self._rng.integers(len(adders))]()

    def finish(self) -> tuple[onnx.ModelProto, list[Any]]:
        """The model, of which everything that nobody reads is an output."""
        ends = [name for name in self._shapes if name not in self._read and name not in self._inputs]
        graph = helper.make_graph(
            self._nodes,
            "random",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in self._inputs.items()],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, self._shapes[name]) for name in ends],
            self._weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        onnx.checker.check_model(model, full_check=True)
        return model, [self._rng.standard_normal(shape).astype(np.float32) for shape in self._inputs.values()]

    # parts

    def _draw_shape(self) -> tuple[int, ...]:
        sizes = self._rng.choice([1, 2, 3, 5, 8, 17], self._rng.integers(1, 4))
        return tuple(int(size) for size in sizes)

    def _pick(self) -> str:
        names = list(self._shapes)
        name = names[int(len(names) * self._rng.random() ** 0.5)]
        self._read.add(name)
        return name

    def _constant(self, array: Any) -> str:
        name = f"c{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def _add(self, op: str, *inputs: str, shape: tuple[int, ...], **attributes: Any) -> str:
        name = f"v{len(self._nodes)}"
        self._nodes.append(helper.make_node(op, inputs, [name], name=f"{op}_{len(self._nodes)}", **attributes))
        self._shapes[name] = shape
        return name

    def _axis(self, shape: tuple[int, ...]) -> int:
        return int(self._rng.integers(len(shape)))

    # operators

    def _map(self) -> None:
        x = self._pick()
        self._add(str(self._rng.choice(_UNARY)), x, shape=self._shapes[x])

    def _combine(self) -> None:
        """Two values that can be stretched to each other, one of them a constant where there are none."""
        x = self._pick()
        shape = self._shapes[x]
        for name, other in self._shapes.items():
            if name != x and self._rng.random() < 0.5 and _can_stretch(shape, other):
                self._read.add(name)
                self._add(str(self._rng.choice(_BINARY)), x, name, shape=np.broadcast_shapes(shape, other))
                return
        part = tuple(size if self._rng.random() < 0.5 else 1 for size in shape)
        weight = self._constant(self._rng.standard_normal(part).astype(np.float32))
        self._add(str(self._rng.choice(_BINARY)), weight, x, shape=shape)

    def _transpose(self) -> None:
        x = self._pick()
        order = [int(axis) for axis in self._rng.permutation(len(self._shapes[x]))]
        self._add("Transpose", x, shape=tuple(self._shapes[x][axis] for axis in order), perm=order)

    def _reshape(self) -> None:
        x = self._pick()
        sizes = [size for size in self._shapes[x] if size != 1] or [1]
        cut = int(self._rng.integers(1, len(sizes) + 1))
        shape = (*sizes[: cut - 1], int(np.prod(sizes[cut - 1 :])), 1)[:4]
        self._add("Reshape", x, self._constant(np.array(shape, np.int64)), shape=shape)

    def _slice(self) -> None:
        x = self._pick()
        shape, axis = list(self._shapes[x]), self._axis(self._shapes[x])
        start = int(self._rng.integers(shape[axis]))
        end, step = int(self._rng.integers(start + 1, shape[axis] + 1)), int(self._rng.choice([1, 1, 2]))
        parts = [self._constant(np.array([number], np.int64)) for number in (start, end, axis, step)]
        shape[axis] = len(range(start, end, step))
        self._add("Slice", x, *parts, shape=tuple(shape))

    def _pad(self) -> None:
        x = self._pick()
        pads = self._rng.integers(0, 3, 2 * len(self._shapes[x])).astype(np.int64)
        low, high = np.split(pads, 2)
        shape = tuple(int(size) for size in np.array(self._shapes[x]) + low + high)
        if np.prod(shape) <= _MOST_ELEMENTS:
            self._add("Pad", x, self._constant(pads), self._constant(np.float32(0.5)), shape=shape)

    def _concat(self) -> None:
        x = self._pick()
        shape, axis = list(self._shapes[x]), self._axis(self._shapes[x])
        if np.prod(shape) * 2 <= _MOST_ELEMENTS:
            weight = self._constant(self._rng.standard_normal(shape).astype(np.float32))
            shape[axis] *= 2
            self._add("Concat", x, weight, shape=tuple(shape), axis=axis)

    def _reduce(self) -> None:
        x = self._pick()
        shape, axis = list(self._shapes[x]), self._axis(self._shapes[x])
        shape[axis] = 1
        axes = self._constant(np.array([axis], np.int64))
        self._add(str(self._rng.choice(_REDUCTIONS)), x, axes, shape=tuple(shape), keepdims=1)

    def _softmax(self) -> None:
        x = self._pick()
        self._add(
            str(self._rng.choice(["Softmax", "LogSoftmax"])), x, shape=self._shapes[x], axis=self._axis(self._shapes[x])
        )

    def _multiply(self) -> None:
        x = self._pick()
        *outer, inner = self._shapes[x]
        columns = int(self._rng.choice([1, 4, 16]))
        if outer:
            weight = self._constant((self._rng.standard_normal((inner, columns)) * inner**-0.5).astype(np.float32))
            self._add("MatMul", x, weight, shape=(*outer, columns))

    def _gather(self) -> None:
        x = self._pick()
        shape, axis = list(self._shapes[x]), self._axis(self._shapes[x])
        indices = self._rng.integers(-shape[axis], shape[axis], 3).astype(np.int64)
        shape[axis] = 3
        if np.prod(shape) <= _MOST_ELEMENTS:
            self._add("Gather", x, self._constant(indices), shape=tuple(shape), axis=axis)

    def _select(self) -> None:
        x = self._pick()
        shape = self._shapes[x]
        name = f"v{len(self._nodes)}"
        zero = self._constant(np.float32(0.1))
        self._nodes.append(helper.make_node("Greater", [x, zero], [name], name=f"Greater_{len(self._nodes)}"))
        other = self._constant(self._rng.standard_normal(shape[-1:]).astype(np.float32))
        self._add("Where", name, x, other, shape=shape)

    def _round(self) -> None:
        """To another type and back; whole numbers are equal in it, whatever was a little off before."""
        x = self._pick()
        name = f"v{len(self._nodes)}"
        kind = int(self._rng.choice([TensorProto.DOUBLE, TensorProto.FLOAT]))
        self._nodes.append(helper.make_node("Cast", [x], [name], name=f"Cast_{len(self._nodes)}", to=kind))
        self._add("Cast", name, shape=self._shapes[x], to=TensorProto.FLOAT)

    def _repeat(self) -> None:
        x = self._pick()
        times = self._rng.integers(1, 3, len(self._shapes[x])).astype(np.int64)
        shape = tuple(int(size) for size in np.array(self._shapes[x]) * times)
        if np.prod(shape) <= _MOST_ELEMENTS:
            self._add("Tile", x, self._constant(times), shape=shape)

    def _accumulate(self) -> None:
        x = self._pick()
        axis = self._constant(np.int64(self._axis(self._shapes[x])))
        self._add("CumSum", x, axis, shape=self._shapes[x], reverse=int(self._rng.integers(2)))


def _can_stretch(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    try:
        return int(np.prod(np.broadcast_shapes(first, second))) <= _MOST_ELEMENTS
    except ValueError:
        return False
