"""Random ONNX models by seed, for tests that hold one way of running a model against another.

A model grows node by node from values whose types and dimensions are known, so it is always a right one. Most floats
are multiples of a power of two small enough that sums and products are exact in every implementation: such a value
says so (``grid``), and only such values go into comparisons, roundings and indices, where a last bit would decide.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

__all__ = ["Draft", "NoFit", "RandomModel", "Value", "make_random_model", "plain_model"]

Dim = int | str
Dims = tuple[Dim, ...]
PLUGIN_DOMAIN = "test"
PLUGIN_OP = "TestScale"
OPSETS = (9, 10, 11, 12, 13, 13, 14, 15, 16, 17, 17, 18, 18, 19, 20, 21, 21, 22, 23, 24, 25, 26)
FLOATS = ("float32", "float16")
INTS = ("int64", "int32", "uint8", "int8")
_SIZES: Sequence[dict[str, int]] = ({"n": 3, "m": 4}, {"n": 7, "m": 6}, {"n": 1, "m": 2}, {"n": 3, "m": 5})
_SIGNIFICANT_BITS = {"float32": 24, "float16": 11}
_LIMITS = {"uint8": (0, 255), "int8": (-128, 127), "bool": (0, 1)}


class NoFit(Exception):
    """No value that is there fits what a node needs."""


@dataclass(frozen=True)
class Value:
    """A tensor of the model: what is known of it while the model is made."""

    name: str
    dtype: str
    dims: Dims
    bound: float = 4.0
    """No element is larger than this, up to a small factor."""
    grid: int | None = None
    """Elements are exact multiples of 2 ** -grid; None for floats that only come close."""
    is_size: bool = False
    """Whether it is an input of a few integers from 1 to 4, from which shapes may be made."""

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def is_exact(self) -> bool:
        return self.grid is not None or self.dtype not in FLOATS

    @property
    def is_static(self) -> bool:
        return all(isinstance(dim, int) for dim in self.dims)


@dataclass(frozen=True)
class RandomModel:
    """A model, and inputs for it at several sizes."""

    seed: int
    model: onnx.ModelProto
    feeds: list[dict[str, Any]]
    bounds: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]
    """For each input with open dimensions the smallest, a usual and the largest shape among the feeds."""
    empty: dict[str, Any] | None
    """Inputs with a dimension of 0, where the model has open ones."""

    @property
    def has_plugins(self) -> bool:
        return _has_plugins(self.model.graph)

    @property
    def ops(self) -> set[str]:
        return {node.op_type for graph in _graphs(self.model.graph) for node in graph.node}


@dataclass
class Shared:
    """What a graph and its bodies have in common."""

    rng: random.Random
    arrays: np.random.Generator
    opset: int
    float_type: str
    use_plugins: bool
    open_dims: bool
    count: int = 0
    functions: list[onnx.FunctionProto] = field(default_factory=list)
    domains: set[str] = field(default_factory=set)


class Draft:
    """A graph under construction, with everything a node maker needs."""

    def __init__(self, shared: Shared, parent: Draft | None = None) -> None:
        self.shared, self.parent = shared, parent
        self.rng, self.opset = shared.rng, shared.opset
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.values: list[Value] = []
        self.sequences: list[Value] = []
        self.inputs: list[Value] = []
        self.read: set[str] = set()

    # names, nodes and weights

    def fresh(self, stem: str) -> str:
        self.shared.count += 1
        return f"{stem}{self.shared.count}"

    def symbol(self) -> str:
        """A dimension nobody knows before the run."""
        return self.fresh("?")

    def emit(
        self, op: str, inputs: Sequence[Value | str], outputs: int = 1, domain: str = "", **attrs: Any
    ) -> list[str]:
        """Add a node and give the names of its outputs."""
        names = [part.name if isinstance(part, Value) else part for part in inputs]
        self.read.update(names)
        results = [self.fresh("v") for _ in range(outputs)]
        self.shared.domains.add(domain)
        label = "" if self.rng.random() < 0.05 else self.fresh(f"{op.lower()}_")
        given = {key: value for key, value in attrs.items() if value is not None}
        self.nodes.append(helper.make_node(op, names, results, name=label, domain=domain, **given))
        return results

    def keep(self, value: Value) -> Value:
        """Offer a value to the nodes that follow."""
        limit = _SIGNIFICANT_BITS.get(value.dtype)
        if limit is not None and value.grid is not None and value.bound * 2.0**value.grid > 2**limit:
            value = replace(value, grid=None)
        if value.dtype in _LIMITS:
            value = replace(value, bound=float(max(map(abs, _LIMITS[value.dtype]))), grid=0)
        self.values.append(value if value in self.inputs else replace(value, is_size=False))
        return self.values[-1]

    def add(self, op: str, inputs: Sequence[Value | str], like: Value, *, domain: str = "", **attrs: Any) -> Value:
        """Add a node with one output that is described by ``like``, whatever its name."""
        (name,) = self.emit(op, inputs, domain=domain, **attrs)
        return self.keep(replace(like, name=name))

    def weight(self, array: Any, *, hint: str = "w") -> Value:
        """A constant: an initializer, or the output of a Constant node."""
        data = np.asarray(array)
        name = self.fresh(hint)
        if self.rng.random() < 0.2 and self.opset >= 9:
            self.nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(data, name)))
        else:
            self.weights.append(numpy_helper.from_array(data, name))
        bound = float(np.abs(data.astype(np.float64)).max()) if data.size else 0.0
        value = Value(name, data.dtype.name, data.shape, bound, _find_grid(data))
        if bound <= 100 and self.rng.random() < 0.12:
            self.keep(value)  # for nodes over constants alone
        return value

    def ints(self, *numbers: int, dtype: str = "int64") -> Value:
        return self.weight(np.asarray(numbers, dtype), hint="k")

    def scalar(self, number: float, dtype: str) -> Value:
        return self.weight(np.asarray(number, dtype), hint="c")

    def floats(self, shape: Sequence[int], dtype: str, *, spread: float = 1.0) -> Value:
        """Random weights, multiples of 1/8."""
        steps = self.shared.arrays.integers(-int(8 * spread), int(8 * spread) + 1, size=tuple(shape))
        return self.weight((steps / 8).astype(dtype))

    # picking

    @property
    def visible(self) -> list[Value]:
        return [*(self.parent.visible if self.parent is not None else ()), *self.values]

    def pick(
        self,
        *dtypes: str,
        fits: Callable[[Value], bool] = lambda _: True,
        exact: bool = False,
        bound: float = 1e4,
    ) -> Value:
        """A value of one of the types, rather a late one that nobody has read."""
        found = [
            value
            for value in self.visible
            if (not dtypes or value.dtype in dtypes)
            and (value.is_exact or not exact)
            and value.bound <= bound
            and fits(value)
        ]
        if not found:
            raise NoFit
        if self.rng.random() < 0.5:
            fresh = [value for value in found if value.name not in self.read]
            found = fresh or found
        return found[-1 - min(int(self.rng.expovariate(0.35)), len(found) - 1)]

    def pick_float(
        self, *, fits: Callable[[Value], bool] = lambda _: True, exact: bool = False, bound: float = 1e4
    ) -> Value:
        return self.pick(*FLOATS, fits=fits, exact=exact, bound=bound)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def body(self) -> Draft:
        return Draft(self.shared, self)


def _find_grid(array: Any) -> int | None:
    if array.dtype.name not in FLOATS:
        return 0
    return 3 if (array.astype(np.float64) * 8 % 1 == 0).all() else None


def broadcast(left: Dims, right: Dims) -> Dims | None:
    """The common dimensions, when they are sure to fit."""
    rank = max(len(left), len(right))
    a, b = (1,) * (rank - len(left)) + tuple(left), (1,) * (rank - len(right)) + tuple(right)
    result: list[Dim] = []
    for x, y in zip(a, b, strict=True):
        if x != y and 1 not in (x, y):
            return None
        result.append(y if x == 1 else x)
    return tuple(result)


def common_grid(*values: Value) -> int | None:
    """The grid of sums and choices of several values."""
    grids = [value.grid if value.grid is not None else None for value in values]
    return None if any(grid is None for grid in grids) else max(grid or 0 for grid in grids)


# whole models


def make_random_model(seed: int, *, plugins: bool | None = None) -> RandomModel:
    """The model of a seed; the same one every time.

    Args:
        seed: Decides everything.
        plugins: Whether there are plugin layers in it; by the seed when None.
    """
    from tests.support.random_nodes import grow

    rng = random.Random(seed)
    shared = Shared(
        rng=rng,
        arrays=np.random.default_rng(seed),
        opset=rng.choice(OPSETS),
        float_type=rng.choices(FLOATS, (9, 1))[0],
        use_plugins=rng.random() < 0.5 if plugins is None else plugins,
        open_dims=rng.random() < 0.6,
    )
    draft = Draft(shared)
    for _ in range(rng.randint(1, 4)):
        _add_input(draft)
    if rng.random() < 0.25:
        _add_sizes(draft)
    grow(draft, rng.randint(3, 14) if rng.random() < 0.7 else rng.randint(15, 40))
    model = _finish(draft, seed)
    sizes = list(_SIZES) if shared.open_dims else [{}, {}]
    feeds = [_feed(draft.inputs, size, seed * 10 + number) for number, size in enumerate(sizes)]
    is_open = [value for value in draft.inputs if not value.is_static]
    empty = _feed(draft.inputs, {"n": 0, "m": 3}, seed) if any("n" in value.dims for value in draft.inputs) else None
    return RandomModel(seed, model, feeds, _bounds(is_open), empty)


def _add_input(draft: Draft) -> Value:
    rng = draft.rng
    types = [draft.shared.float_type, *FLOATS, "int64", "int32", "bool", "uint8", "int8"]
    dtype = rng.choices(types, (10, 2, 1, 2, 1, 1, 1, 1))[0]
    rank = rng.choices(range(6), (1, 3, 6, 5, 5, 0.4))[0]
    dims: list[Dim] = [rng.choices((1, 2, 3, 4, 5, 8, 0), (2, 3, 4, 6, 1, 3, 0.15))[0] for _ in range(rank)]
    if draft.shared.open_dims:
        dims = [rng.choice(("n", "n", "m")) if rng.random() < 0.4 else dim for dim in dims]
    value = Value(draft.fresh("x"), dtype, tuple(dims), 4.0, 3 if dtype in FLOATS else 0)
    draft.inputs.append(value)
    return draft.keep(value)


def _add_sizes(draft: Draft) -> None:
    """An input whose contents decide shapes."""
    count = draft.rng.choice([(), (1,), (2,), (3,)])
    value = Value(draft.fresh("sizes"), draft.rng.choice(["int64", "int64", "int32"]), count, 4.0, 0, is_size=True)
    draft.inputs.append(value)
    draft.keep(value)


def _feed(inputs: Sequence[Value], sizes: dict[str, int], seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    feed: dict[str, Any] = {}
    for value in inputs:
        shape = tuple(sizes[dim] if isinstance(dim, str) else dim for dim in value.dims)
        if value.dtype in FLOATS:
            feed[value.name] = (rng.integers(-32, 33, shape) / 8).astype(value.dtype)
        elif value.is_size:
            feed[value.name] = rng.integers(1, 5, shape).astype(value.dtype)
        elif value.dtype == "bool":
            feed[value.name] = rng.random(shape) < 0.5
        else:
            low, high = (0, 5) if value.dtype == "uint8" else (-4, 5)
            feed[value.name] = rng.integers(low, high, shape).astype(value.dtype)
        feed[value.name] = np.asarray(feed[value.name], value.dtype)
    return feed


def _bounds(inputs: Sequence[Value]) -> dict[str, Any]:
    def shape(value: Value, pick: Callable[[list[int]], int]) -> tuple[int, ...]:
        return tuple(pick([s[dim] for s in _SIZES]) if isinstance(dim, str) else dim for dim in value.dims)

    return {v.name: (shape(v, min), shape(v, lambda sizes: sizes[0]), shape(v, max)) for v in inputs}


def describe(value: Value, rng: random.Random) -> onnx.ValueInfoProto:
    """What the model says of a value; of dimensions that nobody knows it says nothing."""
    number = helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
    dims = [None if isinstance(dim, str) and dim.startswith("?") else dim for dim in value.dims]
    if rng.random() < 0.2:
        return helper.make_tensor_value_info(value.name, number, None)
    return helper.make_tensor_value_info(value.name, number, dims)


def _choose_outputs(draft: Draft) -> list[onnx.ValueInfoProto]:
    """What nobody reads, and some of the odd cases: inputs, weights, values twice and values that are read inside."""
    rng = draft.rng
    inputs = {value.name for value in draft.inputs}
    made = [value for value in draft.values if value.name not in inputs]
    leaves = [value for value in made if value.name not in draft.read][-8:]
    chosen = {value.name: value for value in leaves or made[-1:]}
    inner = [value for value in made if value.name in draft.read]
    if inner and rng.random() < 0.3:
        value = rng.choice(inner)
        chosen[value.name] = value
    if rng.random() < 0.2:
        source = rng.choice(draft.values)
        for _ in range(rng.randint(1, 2)):
            value = draft.add("Identity", [source], source)
            chosen[value.name] = value
    outputs = [describe(value, rng) for value in chosen.values()]
    named = {tensor.name: tensor for tensor in draft.weights if tensor.name not in chosen}
    if named and (not outputs or rng.random() < 0.05):
        tensor = rng.choice(list(named.values()))
        outputs.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    for value in draft.sequences:
        if rng.random() < 0.3:
            kind = helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype)), None)
            outputs.append(helper.make_value_info(value.name, helper.make_sequence_type_proto(kind)))
    rng.shuffle(outputs)
    return outputs


def _finish(draft: Draft, seed: int) -> onnx.ModelProto:
    shared = draft.shared
    outputs = _choose_outputs(draft)
    inputs = [
        helper.make_tensor_value_info(v.name, helper.np_dtype_to_tensor_dtype(np.dtype(v.dtype)), list(v.dims))
        for v in draft.inputs
    ]
    if draft.weights and shared.rng.random() < 0.05:  # a default that a caller may override
        tensor = shared.rng.choice(draft.weights)
        inputs.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    graph = helper.make_graph(draft.nodes, f"random{seed}", inputs, outputs, draft.weights)
    imports = [helper.make_opsetid("", shared.opset)]
    imports += [helper.make_opsetid(domain, 1) for domain in sorted(shared.domains - {""})]
    version = 10 if shared.opset >= 21 else 8
    return helper.make_model(graph, opset_imports=imports, ir_version=version, functions=shared.functions)


# plugins


def plain_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model with an operator of ONNX in the place of each plugin layer."""
    plain = onnx.ModelProto()
    plain.CopyFrom(model)
    for graph in _graphs(plain.graph):
        for node in graph.node:
            if node.domain == PLUGIN_DOMAIN and node.op_type == PLUGIN_OP:
                node.domain, node.op_type = "", "Neg"
                del node.attribute[:]
    return plain


def _graphs(graph: onnx.GraphProto) -> list[onnx.GraphProto]:
    inner = [attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g")]
    return [graph, *(found for body in inner for found in _graphs(body))]


def _has_plugins(graph: onnx.GraphProto) -> bool:
    return any(node.domain == PLUGIN_DOMAIN for part in _graphs(graph) for node in part.node)


def may_be_empty(value: Value) -> bool:
    """Whether a value can have no elements with the usual inputs."""
    return any(dim == 0 or (isinstance(dim, str) and dim.startswith("?")) for dim in value.dims)


def product(dims: Sequence[Dim]) -> int:
    """The product of sizes that are known."""
    return math.prod(int(dim) for dim in dims)
