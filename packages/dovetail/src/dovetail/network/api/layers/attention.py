"""Attention and what goes with it: rotary embeddings and updates of a key-value cache."""

# ruff: noqa: A002 - the contract names arguments after builtins

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from dovetail.network.api.core import NetworkCore
from dovetail.network.api.enums import AttentionIOForm, AttentionNormalizationOp, CausalMaskKind, KVCacheMode, LayerType
from dovetail.network.api.layers.attention_tokens import Tokens, allow, flatten, padded_tokens, restore
from dovetail.network.api.layers.base import ILayer
from dovetail.network.api.properties import Property, choice, data_type, flag, integer, optional
from dovetail.network.inference.shapes import ir_type_from_data_type
from dovetail.types import DataType

if TYPE_CHECKING:
    from dovetail.network.api.emission import Emitter
    from dovetail.network.api.tensor import ITensor

__all__ = ["AttentionLayers", "IAttention", "IAttentionBoundaryLayer", "IKVCacheUpdateLayer", "IRotaryEmbeddingLayer"]

_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


class IAttentionBoundaryLayer(ILayer):
    """A layer of an attention."""

    __slots__ = ()

    @property
    def attention(self) -> IAttentionBoundaryLayer:
        """The attention it belongs to."""
        return self


class IAttention(IAttentionBoundaryLayer):
    """``norm(query @ key^T + mask) @ value``; scale the query first, the scores are not scaled.

    A BOOL mask says what may be attended to, a mask of another type is added to the scores. Padded tensors are
    (batch, heads, tokens, size), with lengths (batch,) when sequences end early. Packed ones are (tokens, heads, size),
    with the running total of lengths (batch + 1,), starting at 0.
    """

    __slots__ = ()

    _layer_type = LayerType.ATTENTION_OUTPUT
    _kind = "Attention"
    _input_names = (
        "query",
        "key",
        "value",
        "mask",
        "normalization_quantize_scale",
        "query_lengths",
        "key_value_lengths",
    )
    _required_inputs = 3

    norm_op = Property(choice(AttentionNormalizationOp), "What is done to the scores.")
    causal_kind = Property(choice(CausalMaskKind), "Which corner the causal diagonal is anchored at.")
    decomposable = Property(flag, "Whether several kernels may do the work; always possible here.")
    query_form = Property(choice(AttentionIOForm), "How the query's sequences lie.")
    key_value_form = Property(choice(AttentionIOForm), "How the sequences of key and value lie.")
    normalization_quantize_to_type = Property(
        optional(data_type(DataType.INT8, DataType.FP8)), "The type the normalized scores are rounded to, or None."
    )

    def __init__(self, network: NetworkCore, tensors: Sequence[ITensor], norm_op: Any, causal_kind: Any) -> None:
        super().__init__(network, tensors)
        self.norm_op, self.causal_kind = norm_op, causal_kind
        self.decomposable = False
        self.query_form = self.key_value_form = AttentionIOForm.PADDED_BHND
        self.normalization_quantize_to_type = None

    @property
    def causal(self) -> bool:
        """Whether a token sees only what is not after it; setting it anchors the diagonal at the upper left."""
        return self.causal_kind != CausalMaskKind.NONE

    @causal.setter
    def causal(self, value: bool) -> None:
        is_causal = flag(value, self._where, "causal")
        self.causal_kind = CausalMaskKind.UPPER_LEFT if is_causal else CausalMaskKind.NONE

    mask = property(lambda self: self.get_input(3), lambda self, tensor: self.set_input(3, tensor), doc="The mask.")
    normalization_quantize_scale = property(
        lambda self: self.get_input(4),
        lambda self, tensor: self.set_input(4, tensor),
        doc="The scale of the rounding of normalized scores.",
    )
    query_lengths = property(
        lambda self: self.get_input(5), lambda self, tensor: self.set_input(5, tensor), doc="Lengths of the queries."
    )
    key_value_lengths = property(
        lambda self: self.get_input(6), lambda self, tensor: self.set_input(6, tensor), doc="Lengths of the keys."
    )

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        query, key, value = e.input(0), e.input(1), e.input(2)
        e.require_same_type(query, key, value)
        for index, (name, form) in enumerate(
            (("query", self.query_form), ("key", self.key_value_form), ("value", self.key_value_form))
        ):
            e.require_rank(e.input(index), 3 if form == AttentionIOForm.PACKED_NHD else 4, name)
        if AttentionIOForm.PACKED_NHD in (self.query_form, self.key_value_form):
            return [self._packed(e, query, key, value)]
        mask, is_causal = self._padded_mask(e, query, key)
        return [self._attend(e, query, key, value, mask, is_causal=is_causal)]

    def _padded_mask(self, e: Emitter, query: ir.Value, key: ir.Value) -> tuple[ir.Value | None, bool]:
        """The mask, and whether the operator's own causal mask (upper left, no lengths) does the rest."""
        mask, lengths = e.optional_input(3), e.optional_input(6)
        upper_left = self.causal_kind == CausalMaskKind.UPPER_LEFT
        if lengths is None and self.causal_kind != CausalMaskKind.LOWER_RIGHT:
            return mask, upper_left
        queries = padded_tokens(e, query, e.optional_input(5))
        keys = padded_tokens(e, key, lengths)
        return _join_masks(e, mask, allow(e, queries, keys, self.causal_kind)), False

    def _packed(self, e: Emitter, query: ir.Value, key: ir.Value, value: ir.Value) -> ir.Value:
        if e.optional_input(3) is not None:
            raise e.error(
                "a mask has no meaning for packed sequences", fix="use causal_kind, or the padded form for the mask"
            )
        queries = self._tokens(e, query, self.query_form, 5, "query_lengths")
        keys = self._tokens(e, key, self.key_value_form, 6, "key_value_lengths")
        allowed = allow(e, queries, keys, self.causal_kind)
        rows = flatten(e, query, self.query_form)
        columns, contents = (flatten(e, part, self.key_value_form) for part in (key, value))
        return restore(e, self._attend(e, rows, columns, contents, allowed), query, value, self.query_form)

    def _tokens(self, e: Emitter, value: ir.Value, form: AttentionIOForm, index: int, name: str) -> Tokens:
        lengths = e.optional_input(index)
        if form == AttentionIOForm.PADDED_BHND:
            return padded_tokens(e, value, lengths).flattened(e)
        if lengths is None:
            raise e.error(f"'{name}' is needed for packed sequences", fix=f"set {name} to the running total of lengths")
        return Tokens.packed(e, value, lengths)

    def _attend(
        self,
        e: Emitter,
        query: ir.Value,
        key: ir.Value,
        value: ir.Value,
        mask: ir.Value | None,
        *,
        is_causal: bool = False,
    ) -> ir.Value:
        rounds = self.normalization_quantize_to_type is not None or e.optional_input(4) is not None
        if self.norm_op == AttentionNormalizationOp.SOFTMAX and not rounds:
            return e.op("Attention", query, key, value, mask, scale=1.0, is_causal=int(is_causal) or None)
        if is_causal:
            upper_left = allow(e, padded_tokens(e, query, None), padded_tokens(e, key, None), self.causal_kind)
            mask = _join_masks(e, mask, upper_left)
        heads = e.dims(query)[1]
        key, value = _repeat_heads(e, key, heads), _repeat_heads(e, value, heads)
        scores = e.op("MatMul", query, e.transpose(key, [0, 1, 3, 2]))
        weights = self._round(e, self._normalize(e, scores, mask))
        return e.op("MatMul", weights, value)

    def _normalize(self, e: Emitter, scores: ir.Value, mask: ir.Value | None) -> ir.Value:
        allowed: ir.Value | None = None
        zero = e.scalar(0.0, "zero", e.dtype(scores))
        if mask is not None and mask.dtype == ir.DataType.BOOL:
            allowed = mask
        elif mask is not None:
            scores = e.op("Add", scores, mask)
        if self.norm_op == AttentionNormalizationOp.NONE:
            return scores if allowed is None else e.op("Where", allowed, scores, zero)
        if allowed is None:
            return e.op("Softmax", scores, axis=-1)
        lowest = e.scalar(-np.inf, "lowest", e.dtype(scores))
        weights = e.op("Softmax", e.op("Where", allowed, scores, lowest), axis=-1)
        return e.op("Where", allowed, weights, zero)

    def _round(self, e: Emitter, weights: ir.Value) -> ir.Value:
        scale, dtype = e.optional_input(4), self.normalization_quantize_to_type
        if scale is None and dtype is None:
            return weights
        if scale is None or dtype is None:
            raise e.error(
                "rounding the normalized scores needs a scale and a type",
                fix="set normalization_quantize_scale and normalization_quantize_to_type",
            )
        scale = e.to_scalar(scale, "normalization_quantize_scale")
        rounded = e.op("QuantizeLinear", weights, scale, output_dtype=ir_type_from_data_type(dtype).value)
        return e.cast(e.op("DequantizeLinear", rounded, scale), e.dtype(weights))


def _join_masks(e: Emitter, mask: ir.Value | None, allowed: ir.Value) -> ir.Value:
    if mask is None:
        return allowed
    if mask.dtype == ir.DataType.BOOL:
        return e.op("And", mask, allowed)
    return e.op("Where", allowed, mask, e.scalar(-np.inf, "lowest", e.dtype(mask)))


def _repeat_heads(e: Emitter, value: ir.Value, heads: int | None) -> ir.Value:
    """Give each query head its own copy of the head of key or value that it shares."""
    own = e.dims(value)[1]
    if heads is None or own is None or heads % own:
        raise e.error(
            "the number of heads must be a constant, and a multiple of that of key and value", got=f"{heads}, {own}"
        )
    if heads == own:
        return value
    return e.op("Gather", value, e.ints([head * own // heads for head in range(heads)], "heads"), axis=1)


class IRotaryEmbeddingLayer(ILayer):
    """Turns pairs of the last dimension by angles; input 3 gives positions into the caches."""

    __slots__ = ()

    _layer_type = LayerType.ROTARY_EMBEDDING
    _kind = "RotaryEmbedding"
    _input_names = ("input", "cos_cache", "sin_cache", "position_ids")
    _required_inputs = 3

    interleaved = Property(flag, "Whether a pair is two neighbours, or one from each half.")
    rotary_embedding_dim = Property(integer(minimum=0), "How much of the last dimension is turned; 0 means all.")

    def __init__(self, network: NetworkCore, tensors: Sequence[ITensor], interleaved: Any, size: Any) -> None:
        super().__init__(network, tensors)
        self.interleaved, self.rotary_embedding_dim = interleaved, size

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        x, cos, sin, positions = e.input(0), e.input(1), e.input(2), e.optional_input(3)
        e.require_rank(x, 4, "input")
        e.require_same_type(x, cos, sin)
        for name, cache in (("cos_cache", cos), ("sin_cache", sin)):
            e.require_rank(cache, 3 if positions is None else 2, name)
        return [
            e.op(
                "RotaryEmbedding",
                x,
                cos,
                sin,
                None if positions is None else e.int64(positions),
                interleaved=int(self.interleaved) or None,
                rotary_embedding_dim=self.rotary_embedding_dim or None,
            )
        ]


class IKVCacheUpdateLayer(ILayer):
    """Writes new keys or values into a cache, for each sequence from its own position on.

    A padded update of an input of the network whose result is an output happens in the memory of the input: callers
    bind both to one address.
    """

    __slots__ = ()

    _layer_type = LayerType.KV_CACHE_UPDATE
    _kind = "KVCacheUpdate"
    _input_names = ("cache", "update", "write_indices", "update_lengths")
    _required_inputs = 3

    cache_mode = Property(choice(KVCacheMode), "Where the update goes.")
    update_form = Property(choice(AttentionIOForm), "How the sequences of the update lie.")

    def __init__(self, network: NetworkCore, tensors: Sequence[ITensor], cache_mode: Any) -> None:
        super().__init__(network, tensors)
        self.cache_mode = cache_mode
        self.update_form = AttentionIOForm.PADDED_BHND

    update_lengths = property(
        lambda self: self.get_input(3),
        lambda self, tensor: self.set_input(3, tensor),
        doc="The running total of the update's lengths, for the packed form.",
    )

    def find_update(self) -> tuple[str, str] | None:
        """The output and the input of the network that are one cache; None where they are two."""
        cache, updated = self.get_input(0), self.get_output(0)
        if self.update_form == AttentionIOForm.PACKED_NHD or cache is None:
            return None
        return (updated.name, cache.name) if cache.is_network_input and updated.is_network_output else None

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        cache, update, indices = e.input(0), e.input(1), e.int64(e.input(2))
        e.require_same_type(cache, update)
        e.require_rank(cache, 4, "cache")
        e.require_rank(indices, 1, "write_indices")
        if self.update_form == AttentionIOForm.PACKED_NHD:
            return [self._packed(e, cache, update, indices)]
        e.require_rank(update, 4, "update")
        return [e.op("TensorScatter", cache, update, indices, axis=2)]

    def _packed(self, e: Emitter, cache: ir.Value, update: ir.Value, indices: ir.Value) -> ir.Value:
        e.require_rank(update, 3, "update")
        lengths = e.optional_input(3)
        if lengths is None:
            raise e.error("'update_lengths' is needed for a packed update", fix="set update_lengths")
        tokens = Tokens.packed(e, update, lengths)
        rows = e.op("Add", e.op("Gather", indices, tokens.sequence, axis=0), tokens.position)
        last = e.ints([-1], "last")
        where = e.op("Concat", *(e.op("Unsqueeze", part, last) for part in (tokens.sequence, rows)), axis=1)
        by_token = e.transpose(cache, [0, 2, 1, 3])
        return e.transpose(e.op("ScatterND", by_token, where, update), [0, 2, 1, 3])


class AttentionLayers(NetworkCore):
    """The methods that add attention."""

    __slots__ = ()

    def add_attention(
        self, query: ITensor, key: ITensor, value: ITensor, norm_op: AttentionNormalizationOp, causal: bool
    ) -> IAttention:
        """Add an attention; ``causal`` anchors the diagonal at the upper left."""
        is_causal = flag(causal, "add_attention", "causal")
        kind = CausalMaskKind.UPPER_LEFT if is_causal else CausalMaskKind.NONE
        tensors = self._check_named("add_attention", query=query, key=key, value=value)
        return self._add_layer(IAttention(self, tensors, norm_op, kind))

    def add_attention_v2(
        self,
        query: ITensor,
        key: ITensor,
        value: ITensor,
        norm_op: AttentionNormalizationOp,
        causal_kind: CausalMaskKind,
    ) -> IAttention:
        """Add an attention with the causal diagonal where ``causal_kind`` says."""
        tensors = self._check_named("add_attention_v2", query=query, key=key, value=value)
        return self._add_layer(IAttention(self, tensors, norm_op, causal_kind))

    def add_rotary_embedding(
        self,
        input: ITensor,
        cos_cache: ITensor,
        sin_cache: ITensor,
        interleaved: bool,
        rotary_embedding_dim: int,
    ) -> IRotaryEmbeddingLayer:
        """Add a rotary embedding of (batch, heads, tokens, size)."""
        tensors = self._check_named("add_rotary_embedding", input=input, cos_cache=cos_cache, sin_cache=sin_cache)
        return self._add_layer(IRotaryEmbeddingLayer(self, tensors, interleaved, rotary_embedding_dim))

    def add_kv_cache_update(
        self,
        cache: ITensor,
        update: ITensor,
        write_indices: ITensor,
        cache_mode: KVCacheMode = KVCacheMode.LINEAR,
    ) -> IKVCacheUpdateLayer:
        """Add an update of a cache (batch, heads, longest, size) from ``write_indices`` (batch,) on."""
        tensors = self._check_named("add_kv_cache_update", cache=cache, update=update, write_indices=write_indices)
        return self._add_layer(IKVCacheUpdateLayer(self, tensors, cache_mode))

    def cache_updates(self) -> dict[str, str]:
        """Output -> the input of the network that it is an update of, for caches that are both."""
        layers = [layer for layer in self._layers if isinstance(layer, IKVCacheUpdateLayer)]
        return dict(update for layer in layers if (update := layer.find_update()) is not None)
