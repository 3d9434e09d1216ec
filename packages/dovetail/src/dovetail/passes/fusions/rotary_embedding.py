"""Written-out rotary position embeddings become one node: x * cos + rotate_half(x) * sin.

The written-out form multiplies by cosines of all features, whose second half repeats the first. The operator takes the
first half only, one row for each position of each sample, so the caches are cut in half first: once for all layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final

import numpy as np
import onnx_ir as ir

from dovetail.passes._graph import Array, constant_array, is_onnx
from dovetail.passes._match import (
    Dim,
    dims_of,
    int_attribute,
    ints_of,
    is_float,
    normalize_axis,
    producer_of,
    rank_of,
    same_dims,
    scalar_of,
)
from dovetail.passes.base import PassResult
from dovetail.passes.fusions.base import Fusion, FusionPass, Inserter

__all__ = ["RotaryEmbeddingFusion"]

_MAX_TRACE: Final = 12


@dataclass(frozen=True)
class _Turn:
    """x turned by a quarter: the second half of its features, negated, and then the first."""

    x: ir.Value
    nodes: tuple[ir.Node, ...]


class RotaryEmbeddingFusion(FusionPass):
    """Replaces what Llama and its relatives write, for inputs of batch, heads, sequence and features."""

    name: ClassVar[str] = "rotary_embedding"
    op: ClassVar[str] = "RotaryEmbedding"
    since: ClassVar[int] = 23
    needs: ClassVar[tuple[str, ...]] = ("Concat", "Expand", "Shape", "Slice", "Squeeze", "Unsqueeze")

    def call(self, model: ir.Model) -> PassResult:
        """Fuse, sharing the halved caches between all layers."""
        self._halves: dict[tuple[object, ir.Value, str], ir.Value] = {}
        return super().call(model)

    def match(self, node: ir.Node) -> Fusion | None:
        """A sum of two products, one of them with the turned input."""
        if not is_onnx(node, "Add") or not is_float(node.outputs[0]):
            return None
        for index in (0, 1):
            plain, turned = producer_of(node.inputs[index], "Mul"), producer_of(node.inputs[1 - index], "Mul")
            if plain is not None and turned is not None:
                fusion = self._match_products(node, plain, turned)
                if fusion is not None:
                    return fusion
        return None

    def _match_products(self, add: ir.Node, plain: ir.Node, turned: ir.Node) -> Fusion | None:
        for index in (0, 1):
            turn, sin = _find_turn(turned.inputs[index]), turned.inputs[1 - index]
            if turn is None or sin is None or turn.x not in plain.inputs:
                continue
            cos = plain.inputs[1] if plain.inputs[0] is turn.x else plain.inputs[0]
            if cos is not None and self._is_cache(cos, turn.x) and self._is_cache(sin, turn.x):
                inputs = (turn.x, cos, sin)
                prepare = partial(self._halve_caches, inputs, add)
                return Fusion(root=add, nodes=(add, plain, turned, *turn.nodes), inputs=inputs, prepare=prepare)
        return None

    def _is_cache(self, value: ir.Value | None, x: ir.Value) -> bool:
        """Whether a value has a row for each position, the same for all heads, whose two halves are equal."""
        dims, wanted = dims_of(value), dims_of(x)
        if value is None or dims is None or wanted is None or len(wanted) != 4 or len(dims) < 2 or len(dims) > 4:
            return False
        padded = (*[1] * (4 - len(dims)), *dims)
        fits = padded[1] == 1 and same_dims(padded[2:], wanted[2:])
        batched = padded[0] == 1 or same_dims(padded[:1], wanted[:1])
        return fits and batched and value.dtype == x.dtype and self._is_doubled(value, _MAX_TRACE)

    def _is_doubled(self, value: ir.Value | None, depth: int) -> bool:
        """Whether the second half of the last axis repeats the first."""
        array = constant_array(value, self.keep)
        if array is not None:
            half = array.shape[-1] // 2 if array.ndim else 0
            return bool(half and np.array_equal(array[..., :half], array[..., half:]))
        node = None if value is None else value.producer()
        if node is None or depth == 0:
            return False
        if is_onnx(node, "Concat"):
            last = normalize_axis(int_attribute(node, "axis", 0), rank_of(value) or 1) + 1 == rank_of(value)
            return last and len(node.inputs) == 2 and node.inputs[0] is node.inputs[1]
        if is_onnx(node, "Cos", "Sin", "Cast", "Identity") or self._keeps_last(node):
            return self._is_doubled(node.inputs[0], depth - 1)
        return False

    def _keeps_last(self, node: ir.Node) -> bool:
        """Whether a node treats all elements of the last axis alike."""
        if is_onnx(node, "Mul"):
            return scalar_of(node.inputs[1], self.keep) is not None
        if is_onnx(node, "Gather"):
            return int_attribute(node, "axis", 0) == 0 and (rank_of(node.inputs[0]) or 0) > 1
        dims, result = dims_of(node.inputs[0]) if node.inputs else None, dims_of(node.outputs[0])
        is_moved = is_onnx(node, "Unsqueeze", "Squeeze", "Expand", "Slice", "Reshape")
        return is_moved and dims is not None and result is not None and same_dims(dims[-1:], result[-1:])

    def _halve_caches(self, inputs: Sequence[ir.Value], root: ir.Node, inserter: Inserter) -> Sequence[ir.Value | None]:
        x, *caches = inputs
        dims = dims_of(x) or ()
        halves: list[ir.Value] = []
        for cache in caches:
            key = (root.graph, cache, str(dims[0]))
            if key not in self._halves:
                array = constant_array(cache, self.keep)
                half = _cut(cache, dims, inserter) if array is None else _cut_array(cache, array, dims, inserter)
                self._halves[key] = _spread(half, x, dims, inserter)
            halves.append(self._halves[key])
        return [x, *halves]


def _find_turn(value: ir.Value | None) -> _Turn | None:
    concat = producer_of(value, "Concat")
    rank = rank_of(value)
    if concat is None or rank is None or len(concat.inputs) != 2:
        return None
    negated = producer_of(concat.inputs[0], "Neg")
    if negated is None or normalize_axis(int_attribute(concat, "axis", 0), rank) != rank - 1:
        return None
    return _from_split(concat, negated, rank) or _from_slices(concat, negated, rank)


def _from_split(concat: ir.Node, negated: ir.Node, rank: int) -> _Turn | None:
    second, first = negated.inputs[0], concat.inputs[1]
    split = None if first is None else producer_of(first, "Split")
    if split is None or len(split.outputs) != 2 or split.outputs[1] is not second or split.inputs[0] is None:
        return None
    halves = [dims_of(value) for value in split.outputs]
    is_last = normalize_axis(int_attribute(split, "axis", 0), rank) == rank - 1
    if not is_last or not same_dims(halves[0], halves[1]):
        return None
    return _Turn(split.inputs[0], (concat, negated, split))


def _from_slices(concat: ir.Node, negated: ir.Node, rank: int) -> _Turn | None:
    second, first = producer_of(negated.inputs[0], "Slice"), producer_of(concat.inputs[1], "Slice")
    if first is None or second is None or first.inputs[0] is not second.inputs[0] or first.inputs[0] is None:
        return None
    dims = dims_of(first.inputs[0])
    size = dims[-1] if dims else None
    if not isinstance(size, int) or size % 2:
        return None
    if _range_of(first, rank, size) != (0, size // 2) or _range_of(second, rank, size) != (size // 2, size):
        return None
    return _Turn(first.inputs[0], (concat, negated, first, second))


def _range_of(node: ir.Node, rank: int, size: int) -> tuple[int, int] | None:
    """The part of the last axis that a Slice takes; None when it takes anything else."""
    given = [ints_of(value) for value in node.inputs[1:]]
    if not 3 <= len(given) <= 4 or any(numbers is None or len(numbers) != 1 for numbers in given):
        return None
    start, end, axis, *step = [numbers[0] for numbers in given if numbers]
    if normalize_axis(axis, rank) != rank - 1 or step not in ([], [1]):
        return None
    return (start + size if start < 0 else start), (end + size if end < 0 else min(end, size))


def _cut_array(cache: ir.Value, array: Array, dims: Sequence[Dim], inserter: Inserter) -> ir.Value:
    half = array[..., : array.shape[-1] // 2]
    rows = half.reshape(-1 if half.ndim < 4 else half.shape[0], *half.shape[-2:])
    if isinstance(dims[0], int):
        rows = np.broadcast_to(rows, (dims[0], *rows.shape[1:]))
    return inserter.constant(f"{cache.name}_half", np.ascontiguousarray(rows))


def _cut(cache: ir.Value, dims: Sequence[Dim], inserter: Inserter) -> ir.Value:
    """The first half of the features, without the axis of the heads."""
    had = dims_of(cache) or ()
    size = dims[-1] // 2 if isinstance(dims[-1], int) else 0
    bounds = [
        inserter.constant(f"{cache.name}_{name}", np.asarray([number], dtype=np.int64))
        for name, number in (("start", 0), ("end", size), ("axis", len(had) - 1))
    ]
    half = inserter.node("Slice", [cache, *bounds], like=cache, shape=ir.Shape([*had[:-1], size]))
    if len(had) == 3:
        return half
    axis = inserter.constant(f"{cache.name}_head", np.asarray([1 if len(had) == 4 else 0], dtype=np.int64))
    op, batch = ("Squeeze", had[0]) if len(had) == 4 else ("Unsqueeze", 1)
    return inserter.node(op, [half, axis], like=cache, shape=ir.Shape([batch, had[-2], size]))


def _spread(half: ir.Value, x: ir.Value, dims: Sequence[Dim], inserter: Inserter) -> ir.Value:
    """One row for each sample, where there was one for all."""
    had = dims_of(half) or ()
    if same_dims(had[:1], dims[:1]):
        return half
    if isinstance(dims[0], int):
        sizes = inserter.constant(f"{half.name}_sizes", np.asarray([dims[0], 1, 1], dtype=np.int64))
    else:
        ones = inserter.constant(f"{half.name}_ones", np.asarray([1, 1], dtype=np.int64))
        batch = inserter.node("Shape", [x], like=ones, shape=ir.Shape([1]), start=0, end=1)
        sizes = inserter.node("Concat", [batch, ones], like=ones, shape=ir.Shape([3]), axis=0)
    return inserter.node("Expand", [half, sizes], like=half, shape=ir.Shape([dims[0], *had[1:]]))
