"""Written-out scaled dot-product attention becomes one node, with its mask, its scale and its groups of heads.

The form is softmax(q k^T * scale + mask) v. Around it exporters write how heads are parted and joined, how the keys
and values of a group of heads are repeated, and a guard for rows of nothing but masked scores; as much of it goes into
the node as nobody else reads. A row that is masked out with -inf as a whole gives NaN when it is written out without
the guard; the operator gives zeros, as the guard does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Final

import onnx_ir as ir

from dovetail.passes._graph import is_onnx
from dovetail.passes._match import (
    dims_of,
    int_attribute,
    ints_attribute,
    is_float,
    is_named,
    normalize_axis,
    one_reader,
    producer_of,
    same_dims,
    scalar_of,
)
from dovetail.passes.fusions._attention_heads import (
    KEYS_FROM_ROWS,
    SWAP_HEADS,
    HeadLayout,
    count_heads,
    flatten_heads,
    join_heads,
    ungroup,
)
from dovetail.passes.fusions._attention_masks import is_causal, is_nothing
from dovetail.passes.fusions.base import Attribute, Fusion, FusionPass, Inserter

__all__ = ["AttentionFusion"]

_TRANSPOSE: Final = [0, 1, 3, 2]
_NARROW: Final = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


@dataclass(frozen=True, kw_only=True)
class _AttentionMatch:
    """The parts of one attention; queries, keys and values have four axes."""

    query: ir.Value
    key: HeadLayout
    value: ir.Value
    mask: ir.Value | None
    scores: ir.Value
    product: ir.Node
    """The last product, of the weights and the values."""
    nodes: tuple[ir.Node, ...]
    scale: float
    precision: int | None


class _ScoreTrace:
    """What was passed on the way: nodes, and the constants that something is multiplied by."""

    def __init__(self, keep: frozenset[str]) -> None:
        self.nodes: list[ir.Node] = []
        self.factor = 1.0
        self._keep = keep

    def strip(self, value: ir.Value | None) -> ir.Value | None:
        """A value without the constant that it is multiplied or divided by."""
        node = producer_of(value, "Mul", "Div")
        if node is None:
            return value
        for index in (1, 0) if node.op_type == "Mul" else (1,):
            scalar = scalar_of(node.inputs[index], self._keep)
            if scalar:
                self.factor *= scalar if node.op_type == "Mul" else 1 / scalar
                self.nodes.append(node)
                return node.inputs[1 - index]
        return value


class AttentionFusion(FusionPass):
    """Replaces the attention of BERT, GPT-2, ViT and Llama, as exporters write it."""

    name: ClassVar[str] = "attention"
    op: ClassVar[str] = "Attention"
    since: ClassVar[int] = 23
    needs: ClassVar[tuple[str, ...]] = ("Transpose",)

    def match(self, node: ir.Node) -> Fusion | None:
        """From the softmax outwards, with as much around it as can go into the node."""
        found = self._find_core(node) if is_onnx(node, "Softmax") else None
        if found is None or not _sizes_fit(found) or not _mask_fits(found):
            return None
        fusions = (fusion for each in _widen(found) for fusion in self._write(each))
        return next((fusion for fusion in fusions if self.allows(fusion)), None)

    def _find_core(self, softmax: ir.Node) -> _AttentionMatch | None:
        trace = _ScoreTrace(self.keep)
        scores = softmax.inputs[0]
        if scores is None or len(dims_of(scores) or ()) != 4 or not is_float(scores):
            return None
        if normalize_axis(int_attribute(softmax, "axis", -1), 4) != 3:
            return None
        weights, raw, precision = self._leave_casts(softmax, trace)
        product = one_reader(self._leave_guard(weights, trace), "MatMul")
        if product is None or product.inputs[1] is None or raw is None:
            return None
        trace.nodes += [softmax, product]
        mask, inner = self._split_mask(raw, trace)
        parts = self._find_factors(inner, trace)
        if parts is None or not math.isfinite(trace.factor) or trace.factor <= 0:
            return None
        query, key = parts
        return _AttentionMatch(
            query=query,
            key=key,
            value=product.inputs[1],
            mask=mask,
            scores=raw,
            product=product,
            nodes=tuple(trace.nodes),
            scale=trace.factor,
            precision=precision,
        )

    def _leave_casts(self, softmax: ir.Node, trace: _ScoreTrace) -> tuple[ir.Value, ir.Value | None, int | None]:
        """The weights, the scores, and the type of a softmax that is computed in another than theirs."""
        weights, scores = softmax.outputs[0], softmax.inputs[0]
        before, after = producer_of(scores, "Cast"), one_reader(weights, "Cast")
        raw = None if before is None else before.inputs[0]
        if before is None or after is None or raw is None or scores is None or scores.dtype is None:
            return weights, scores, None
        if raw.dtype not in _NARROW or after.outputs[0].dtype != raw.dtype:
            return weights, scores, None
        trace.nodes += [before, after]
        return after.outputs[0], raw, int(scores.dtype)

    def _leave_guard(self, weights: ir.Value, trace: _ScoreTrace) -> ir.Value:
        """The weights after what puts zeros in place of the NaN of a row that is masked out."""
        readers = [use.node for use in weights.uses()]
        test = next((node for node in readers if is_onnx(node, "IsNaN")), None)
        where = None if test is None else one_reader(test.outputs[0], "Where")
        if test is None or where is None or len(readers) != 2 or where.inputs[2] is not weights:
            return weights
        if where.inputs[0] is not test.outputs[0] or scalar_of(where.inputs[1], self.keep) != 0.0:
            return weights
        trace.nodes += [test, where]
        return where.outputs[0]

    def _split_mask(self, scores: ir.Value, trace: _ScoreTrace) -> tuple[ir.Value | None, ir.Value | None]:
        """The mask that is added to scores, if any, and the scores without it."""
        add = producer_of(scores, "Add")
        if add is None:
            return None, scores
        for index in (0, 1):
            if producer_of(_ScoreTrace(self.keep).strip(add.inputs[index]), "MatMul") is not None:
                trace.nodes.append(add)
                return add.inputs[1 - index], add.inputs[index]
        return None, None

    def _find_factors(self, scores: ir.Value | None, trace: _ScoreTrace) -> tuple[ir.Value, HeadLayout] | None:
        """Queries and keys, from their product."""
        product = producer_of(trace.strip(scores), "MatMul")
        if product is None:
            return None
        query, turned = trace.strip(product.inputs[0]), trace.strip(product.inputs[1])
        transpose = producer_of(turned, "Transpose")
        perm = None if transpose is None else ints_attribute(transpose, "perm")
        if query is None or transpose is None or perm not in (_TRANSPOSE, KEYS_FROM_ROWS):
            return None
        trace.nodes += [product, transpose]
        key = trace.strip(transpose.inputs[0])
        return None if key is None else (query, HeadLayout(key, perm == KEYS_FROM_ROWS))

    def _write(self, found: _AttentionMatch) -> Iterator[Fusion]:
        """With heads parted and joined by the operator, and with heads on an axis of their own."""
        causal = _is_square(found) and is_causal(found.mask, self.keep)
        attributes: dict[str, Attribute] = {"is_causal": int(causal), "scale": found.scale}
        if found.precision is not None:
            attributes["softmax_precision"] = found.precision
        mask = () if causal or is_nothing(found.mask, self.keep) else (found.mask,)
        yield from _write_flat(found, attributes, mask)
        inputs = (found.query, found.key.value, found.value, *mask)
        prepare = partial(_turn_keys, inputs) if found.key.is_rows else None
        yield Fusion(root=found.product, nodes=found.nodes, inputs=inputs, attributes=attributes, prepare=prepare)


def _sizes_fit(found: _AttentionMatch) -> bool:
    """Whether these are stacks of matrices that are multiplied one by one, without broadcasting."""
    query, key, value = dims_of(found.query), found.key.dims(), dims_of(found.value)
    if query is None or key is None or value is None or not len(query) == len(key) == len(value) == 4:
        return False
    same = same_dims(query[:2], key[:2]) and same_dims(key[:3], value[:3])
    return same and isinstance(query[1], int) and isinstance(query[3], int)


def _mask_fits(found: _AttentionMatch) -> bool:
    """Whether a mask broadcasts to the scores, and has a column for each key."""
    mask, scores = dims_of(found.mask), dims_of(found.scores)
    if found.mask is None:
        return True
    if mask is None or scores is None or not 2 <= len(mask) <= 4 or found.mask.dtype != found.query.dtype:
        return False
    keys = found.key.dims()
    if keys is None or not same_dims(mask[-1:], keys[2:3]):
        return False
    query = dims_of(found.query) or ()
    wanted = (*query[:3], keys[2])[4 - len(mask) :]
    return all(size == 1 or (is_named(size) and size == other) for size, other in zip(mask, wanted, strict=True))


def _is_square(found: _AttentionMatch) -> bool:
    """Whether there are as many queries as keys, and a mask has them all."""
    query, key, mask = dims_of(found.query), found.key.dims(), dims_of(found.mask)
    if query is None or key is None or mask is None:
        return False
    return same_dims(query[2:3], key[2:3]) and same_dims(mask[-2:], (query[2], key[2]))


def _widen(found: _AttentionMatch) -> Iterator[_AttentionMatch]:
    """With keys and values before they were repeated for each head of a group, and as they are."""
    key, value = ungroup(found.key), ungroup(HeadLayout(found.value, False))
    if key is not None and value is not None:
        one, other = key.layout.dims(), value.layout.dims()
        if one is not None and other is not None and same_dims(one[:3], other[:3]):
            nodes = (*found.nodes, *key.nodes, *value.nodes)
            yield replace(found, key=key.layout, value=value.layout.value, nodes=nodes)
    yield found


def _write_flat(
    found: _AttentionMatch, attributes: dict[str, Attribute], mask: tuple[ir.Value | None, ...]
) -> Iterator[Fusion]:
    """Queries, keys and values with all heads side by side, and the result too, if they are all there like that."""
    query = flatten_heads(HeadLayout(found.query, False))
    key, value = flatten_heads(found.key), flatten_heads(HeadLayout(found.value, False))
    joined = join_heads(found.product)
    if query is None or key is None or value is None or joined is None:
        return
    heads = {
        "q_num_heads": count_heads(HeadLayout(found.query, False)),
        "kv_num_heads": count_heads(HeadLayout(found.value, False)),
    }
    yield Fusion(
        root=joined.root,
        nodes=(*found.nodes, *query.nodes, *key.nodes, *value.nodes, *joined.nodes),
        inputs=(query.layout.value, key.layout.value, value.layout.value, *mask),
        attributes={**attributes, **heads},
        shape=joined.shape,
    )


def _turn_keys(inputs: tuple[ir.Value | None, ...], inserter: Inserter) -> list[ir.Value | None]:
    """The inputs, with the heads of the keys before the sequence: nobody needed them in this order before."""
    query, key, *rest = inputs
    dims = dims_of(key)
    if key is None or dims is None:
        return list(inputs)
    shape = ir.Shape([dims[axis] for axis in SWAP_HEADS])
    return [query, inserter.node("Transpose", [key], like=key, shape=shape, perm=tuple(SWAP_HEADS)), *rest]
