"""Random chains behind products, by every way that a product can run, against the kernels of ``cpu``."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail
from dovetail_cuda.compile.products import ProductTile
from tests.cuda.host.fake_provider import FakeProducts

INNER = 64
TILES = {
    "tiles": [ProductTile(m=16, n=32, k=32, num_warps=4, num_stages=2, prefetches=True)],
    "split": [ProductTile(m=16, n=32, k=32, num_warps=4, num_stages=2, split=2)],
    "library": [],
}


class _Chain:
    """A model that grows behind a product."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.numbers = rng, np.random.default_rng(rng.randrange(1 << 30))
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.inputs: list[Any] = []
        self.shape: tuple[int, ...] = (*rng.choice([(32,), (2, 16), (4, 8), (2, 20)]), rng.choice([32, 40, 48]))
        self.value = self.multiply()
        self.seen = [(self.value, self.shape)]

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def weight(self, array: Any) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(array), f"w{len(self.weights)}"))
        return f"w{len(self.weights) - 1}"

    def input(self, shape: tuple[int, ...]) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def multiply(self) -> str:
        *lead, columns = self.shape
        weight = self.weight((self.numbers.standard_normal((INNER, columns)) * 0.1).astype(np.float32))
        if len(lead) == 2 and self.rng.random() < 0.3:
            turned = self.add("Transpose", self.input((lead[1], lead[0], INNER)), perm=[1, 0, 2])
            return self.add("MatMul", turned, weight)
        return self.add("MatMul", self.input((*lead, INNER)), weight)

    def grow(self) -> None:
        step = self.rng.choice([self.compute, self.read, self.part_and_join, self.reshape, self.transpose, self.reuse])
        step()
        self.seen.append((self.value, self.shape))

    def compute(self) -> None:
        op = self.rng.choice(["Relu", "Sigmoid", "Gelu", "Tanh", "Softmax", "Square"])
        self.value = self.add("Mul", self.value, self.value) if op == "Square" else self.add(op, self.value)

    def read(self) -> None:
        kind, shape = self.rng.choice(["bias", "residual", "row", "product"]), self.shape
        if kind == "bias":
            self.value = self.add("Add", self.value, self.weight(self.numbers.random(shape[-1:], np.float32)))
        elif kind == "product" and len(shape) > 1:
            self.value = self.add("Mul", self.value, self.multiply())
        else:
            self.value = self.add("Add", self.input((*shape[:-1], 1) if kind == "row" else shape), self.value)

    def part_and_join(self) -> None:
        gate, other = self.add("Sigmoid", self.value), self.add("Tanh", self.value)
        self.value = self.add("Add", self.add("Mul", self.value, gate), other)

    def reshape(self) -> None:
        total, last = int(np.prod(self.shape)), self.shape[-1]
        self.shape = self.rng.choice([(total,), (self.shape[0], total // self.shape[0]), (total // last, last)])
        self.value = self.add("Reshape", self.value, self.weight(np.array(self.shape, np.int64)))

    def transpose(self) -> None:
        order = self.rng.sample(range(len(self.shape)), len(self.shape))
        self.shape = tuple(self.shape[axis] for axis in order)
        self.value = self.add("Transpose", self.value, perm=order)

    def reuse(self) -> None:
        earlier = [value for value, shape in self.seen if shape == self.shape]
        self.value = self.add("Add", self.value, self.rng.choice(earlier or [self.value]))

    def model(self) -> onnx.ModelProto:
        outputs = dict([(self.value, self.shape), *self.rng.sample(self.seen, self.rng.choice([0, 0, 1]))])
        made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()]
        graph = helper.make_graph(self.nodes, "chain", self.inputs, made, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
        model.ir_version = 10
        return model


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("way", list(TILES))
def test_whatever_follows_a_product_is_right(paper: Any, monkeypatch: Any, way: str, seed: int) -> None:
    """Each product has one way only, so that nothing is timed."""
    algorithms = [bytes(64)] if way == "library" else []
    monkeypatch.setattr("dovetail_cuda.tune.products.list_tiles", lambda region, kit: TILES[way])
    monkeypatch.setattr(FakeProducts, "find_algorithms", lambda library, product, count: algorithms)
    chain = _Chain(random.Random(f"{way} {seed}"))
    for _ in range(chain.rng.randrange(1, 8)):
        chain.grow()
    model = chain.model()
    shapes = [[dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in model.graph.input]
    inputs = [chain.numbers.standard_normal(shape).astype(np.float32) for shape in shapes]
    expected = dovetail.compile(model, providers=["cpu"])(*inputs)
    engine = dovetail.compile(model, providers=["cuda", "cpu"])
    assert {step.provider for step in engine.manifest.programs[0].steps} == {"cuda"}
    results = engine(*inputs)
    pairs = [(results[n], expected[n]) for n in results] if isinstance(results, dict) else [(results, expected)]
    for result, right in pairs:
        np.testing.assert_allclose(result, right, rtol=2e-3, atol=2e-3)
