"""Small models that a provider is tried on, with inputs; each shows one thing that back ends get wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["CHAIN", "MODELS", "TYPES", "Case", "Feed", "find_case", "make_feed", "product_case", "typed_case"]

Feed = dict[str, npt.NDArray[Any]]

TYPES: Final = ("float32", "float16", "float64", "int8", "uint8", "int32", "int64", "bool")
"""The element types that a provider is tried with."""

_ONNX_NAMES: Final = {"float32": "float", "float64": "double"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model as text, its weights, and the shapes of inputs to run it with, one mapping a run."""

    name: str
    text: str
    """The graph in the syntax of ONNX; ``W`` and the other names of ``weights`` are its initializers."""
    shapes: Sequence[Mapping[str, tuple[int, ...]]]
    types: Mapping[str, str] = field(default_factory=dict)
    """Of inputs that are not float32."""
    weights: Mapping[str, Any] = field(default_factory=dict)
    model: Any = None
    """The author's own model, in place of the text."""
    arrays: Mapping[str, Any] = field(default_factory=dict)
    """Its inputs."""
    positive: frozenset[str] = frozenset()
    """Inputs that get numbers above 0, because they divide."""

    def make_model(self, weights: Mapping[str, Any] | None = None) -> Any:
        """The model, for everything that ``dovetail.compile`` takes."""
        from onnx import numpy_helper, parser

        if self.model is not None:
            return self.model
        model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {self.text}')
        for name, array in {**self.weights, **(weights or {})}.items():
            model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        return model

    def make_feeds(self, seed: int = 0) -> list[Feed]:
        """Arrays for each run."""
        if self.arrays:
            return [dict(self.arrays)] * 2
        feeds = [make_feed(shapes, self.types, seed + index) for index, shapes in enumerate(self.shapes)]
        for feed in feeds:
            feed.update({name: np.abs(feed[name]) + np.ones_like(feed[name]) for name in self.positive & feed.keys()})
        return feeds


def make_feed(shapes: Mapping[str, tuple[int, ...]], types: Mapping[str, str], seed: int) -> Feed:
    """Small numbers of both signs, exact in every type."""
    random = np.random.default_rng(seed)
    return {name: _draw(random, shape, types.get(name, "float32")) for name, shape in shapes.items()}


def _draw(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
    numbers = random.integers(-8, 9, shape)
    if dtype == "bool":
        return np.asarray(numbers > 0)
    if np.dtype(dtype).kind == "f":
        return np.asarray(numbers / 4, np.dtype(dtype))
    small = numbers // 2  # sums and products stay in eight bits: what comes after them ONNX does not say
    return np.asarray(abs(small) if dtype.startswith("u") else small, np.dtype(dtype))


def typed_case(dtype: str) -> Case:
    """Sums and products of one type, or what booleans have instead."""
    name = _ONNX_NAMES.get(dtype, dtype)
    body = (
        "a = And(x, z)  b = Not(a)  y = Xor(b, z)" if dtype == "bool" else "a = Add(x, z)  b = Mul(a, z)  y = Add(b, x)"
    )
    text = f"typed ({name}[N, 4] x, {name}[N, 4] z) => ({name}[N, 4] y) {{ {body} }}"
    shapes = [{"x": (rows, 4), "z": (rows, 4)} for rows in (3, 1)]
    return Case(name=f"types {dtype}", text=text, shapes=shapes, types={"x": dtype, "z": dtype})


def product_case(dtype: str) -> Case:
    """A matrix product of one type, long enough that sums in a smaller type would show."""
    name = _ONNX_NAMES.get(dtype, dtype)
    text = f"product ({name}[N, 64] x, {name}[64, 5] z) => ({name}[N, 5] y) {{ y = MatMul(x, z) }}"
    shapes = [{"x": (rows, 64), "z": (64, 5)} for rows in (3, 1)]
    return Case(name=f"products of {dtype}", text=text, shapes=shapes, types={"x": dtype, "z": dtype})


_WEIGHT: Final = np.random.default_rng(7).integers(-4, 5, (8, 8)).astype(np.float32) / 4
_KERNEL: Final = np.random.default_rng(8).integers(-4, 5, (4, 3, 3, 3)).astype(np.float32) / 4

CHAIN: Final = Case(
    name="chain",
    text="chain (float[N, 8] x) => (float[N, 8] y) { a = MatMul(x, W)  b = Relu(a)  c = Softmax(b)  y = Add(c, x) }",
    shapes=[{"x": (3, 8)}],
    weights={"W": _WEIGHT},
)
"""The model of all rules that need just one."""

_DYNAMIC_SIZES: Final = ((3, 8), (1, 1), (7, 5), (3, 8), (65, 129), (3, 8))
"""Sizes that follow one another; one is larger than the blocks that kernels are cut into, and no multiple of them."""

MODELS: Final = (
    CHAIN,
    Case(
        name="dynamic shapes",
        text="dyn (float[N, M] x, float[M] z) => (float[N, M] y) { a = Add(x, z)  b = Relu(a)  y = Mul(b, x) }",
        shapes=[{"x": (rows, columns), "z": (columns,)} for rows, columns in _DYNAMIC_SIZES],
    ),
    Case(
        name="empty tensors",
        text="empty (float[N, 8] x) => (float[N, 8] y, float[N, 8] z) { a = MatMul(x, W)  y = Relu(a)  z = Add(y, x) }",
        shapes=[{"x": (0, 8)}, {"x": (2, 8)}, {"x": (0, 8)}],
        weights={"W": _WEIGHT},
    ),
    Case(
        name="scalars",
        text="scalar (float x, float[3] v) => (float y, float[3] w) { a = Relu(x)  y = Neg(a)  w = Add(v, y) }",
        shapes=[{"x": (), "v": (3,)}] * 2,
    ),
    Case(
        name="several outputs",
        text="several (float[N, 8] x) => (float[N, 8] a, float[N, 8] b, float[N, 8] c, float[N, 8] d)"
        " { a = Relu(x)  b = Neg(a)  c = Add(a, b)  d = Identity(x) }",
        shapes=[{"x": (3, 8)}] * 2,
    ),
    Case(
        name="outputs nobody reads",
        text="unread (float[N, 8] x) => (float[N, 4] y)"
        " { a, unread = Split<axis = 1, num_outputs = 2>(x)  y = Relu(a)  dead = Neg(a) }",
        shapes=[{"x": (3, 8)}] * 2,
    ),
    Case(
        name="initializers as outputs",
        text="constants (float[N, 8] x) => (float[N, 8] y, float[8, 8] W, float[8, 8] V)"
        " { a = MatMul(x, W)  y = Relu(a)  V = Identity(W) }",
        shapes=[{"x": (3, 8)}] * 2,
        weights={"W": _WEIGHT},
    ),
    Case(
        name="convolution",
        text="image (float[N, 3, H, H] x) => (float[N, 4, 1, 1] y)"
        " { a = Conv<pads = [1, 1, 1, 1]>(x, K)  b = Relu(a)"
        "  c = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(b)  y = GlobalAveragePool(c) }",
        shapes=[{"x": (2, 3, 8, 8)}, {"x": (1, 3, 6, 6)}],
        weights={"K": _KERNEL},
    ),
    Case(
        name="shapes as numbers",
        text="shapes (float[N, 8] x) => (float[M, P] y)"
        " { s = Shape(x)  r = Gather(s, I)  a = Reshape(x, r)  b = Transpose<perm = [1, 0]>(a)  y = Relu(b) }",
        shapes=[{"x": (3, 8)}, {"x": (5, 8)}],
        weights={"I": np.array([1, 0])},
    ),
)
"""What every provider is tried on; nodes that it does not take go to ``cpu``."""


def find_case(name: str) -> Case:
    """The model of that name."""
    return next(case for case in MODELS if case.name == name)
