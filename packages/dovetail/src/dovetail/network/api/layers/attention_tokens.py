"""Which token of which sequence a row of attention is, and which rows may attend to which.

Packed and padded sequences are made comparable by three numbers for each token: its sequence, its position in it, and
how long the sequence is. Shapes are (tokens,) for flat sequences and broadcast to (batch, tokens) for padded ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from dovetail.network.api.enums import AttentionIOForm, CausalMaskKind

if TYPE_CHECKING:
    from dovetail.network.api.emission import Emitter

__all__ = ["Tokens", "allow", "flatten", "padded_tokens", "restore"]


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """What is known of the tokens of one tensor; INT64 values."""

    sequence: ir.Value | None
    """Which sequence; None when the batch dimension says it."""
    position: ir.Value
    length: ir.Value
    has_padding: bool
    """Whether a position can lie beyond the length."""
    batch: ir.Value | None = None
    size: ir.Value | None = None
    """Of padded tensors: how many sequences, and tokens in each, as scalars."""

    @staticmethod
    def packed(e: Emitter, value: ir.Value, totals: ir.Value) -> Tokens:
        """Tokens of (tokens, heads, size) with the running total of lengths, (batch + 1,)."""
        e.require_rank(totals, 1, "lengths")
        totals = e.int64(totals)
        token = _count(e, e.to_scalar(e.dim(value, 0), "tokens"))
        ends = e.op("Slice", totals, e.ints([1], "first_end"), e.ints([2**63 - 1], "last_end"), e.ints([0], "axis"))
        over = e.op("GreaterOrEqual", e.op("Unsqueeze", token, e.ints([1], "column")), ends)
        sequence = e.op("ReduceSum", e.cast(over, ir.DataType.INT64), e.ints([1], "ends"), keepdims=0)
        start = e.op("Gather", totals, sequence, axis=0)
        end = e.op("Gather", totals, e.op("Add", sequence, e.scalar(1, "one")), axis=0)
        return Tokens(
            sequence=sequence,
            position=e.op("Sub", token, start),
            length=e.op("Sub", end, start),
            has_padding=False,
        )

    def flattened(self, e: Emitter) -> Tokens:
        """Padded tokens laid end to end, as ``flatten`` lays the tensor."""
        if self.batch is None or self.size is None:
            return self
        row = _count(e, e.op("Mul", self.batch, self.size))
        sequence = e.op("Div", row, self.size)
        length = self.length
        if self.has_padding:
            length = e.op("Gather", e.reshape(length, [-1]), sequence, axis=0)
        return Tokens(
            sequence=sequence, position=e.op("Mod", row, self.size), length=length, has_padding=self.has_padding
        )


def padded_tokens(e: Emitter, value: ir.Value, lengths: ir.Value | None) -> Tokens:
    """Tokens of (batch, heads, tokens, size); lengths are (batch,), or None when no sequence ends early."""
    batch, size = (e.to_scalar(e.dim(value, axis), name) for axis, name in ((0, "batch"), (2, "tokens")))
    position = e.op("Unsqueeze", _count(e, size), e.ints([0], "row"))
    length = size
    if lengths is not None:
        e.require_rank(lengths, 1, "lengths")
        length = e.op("Unsqueeze", e.int64(lengths), e.ints([1], "column"))
    return Tokens(
        sequence=None,
        position=position,
        length=length,
        has_padding=lengths is not None,
        batch=batch,
        size=size,
    )


def _count(e: Emitter, size: ir.Value) -> ir.Value:
    return e.op("Range", e.scalar(0, "zero"), size, e.scalar(1, "one"))


def allow(e: Emitter, queries: Tokens, keys: Tokens, causal: CausalMaskKind) -> ir.Value:
    """A BOOL value that broadcasts to (batch, heads, queries, keys): what may be attended to."""

    def as_row(value: ir.Value) -> ir.Value:
        return e.op("Unsqueeze", value, e.ints([-2], "row")) if e.rank(value) else value

    def as_column(value: ir.Value) -> ir.Value:
        return e.op("Unsqueeze", value, e.ints([-1], "column")) if e.rank(value) else value

    key_position, parts = as_row(keys.position), []
    if queries.sequence is not None and keys.sequence is not None:
        parts.append(e.op("Equal", as_column(queries.sequence), as_row(keys.sequence)))
    if keys.has_padding:
        parts.append(e.op("Less", key_position, as_row(keys.length)))
    if causal != CausalMaskKind.NONE:
        reach = as_column(queries.position)
        if causal == CausalMaskKind.LOWER_RIGHT:
            reach = e.op("Add", reach, e.op("Sub", as_row(keys.length), as_column(queries.length)))
        parts.append(e.op("LessOrEqual", key_position, reach))
    allowed = parts[0]
    for part in parts[1:]:
        allowed = e.op("And", allowed, part)
    # (batch, queries, keys) needs its heads; (queries, keys) broadcasts as it is.
    return e.op("Unsqueeze", allowed, e.ints([1], "heads")) if e.rank(allowed) == 3 else allowed


def flatten(e: Emitter, value: ir.Value, form: AttentionIOForm) -> ir.Value:
    """Every token of every sequence in one row: (1, heads, tokens, size)."""
    if form == AttentionIOForm.PACKED_NHD:
        return e.op("Unsqueeze", e.transpose(value, [1, 0, 2]), e.ints([0], "batch"))
    by_head = e.transpose(value, [1, 0, 2, 3])
    heads, size = e.dim(value, 1), e.dim(value, 3)
    return e.reshape(by_head, e.op("Concat", e.ints([1], "batch"), heads, e.ints([-1], "tokens"), size, axis=0))


def restore(e: Emitter, flat: ir.Value, query: ir.Value, value: ir.Value, form: AttentionIOForm) -> ir.Value:
    """The result of flat queries in the form of the query; the last dimension is that of the value."""
    if form == AttentionIOForm.PACKED_NHD:
        return e.transpose(e.op("Squeeze", flat, e.ints([0], "batch")), [1, 0, 2])
    size = e.dim(value, e.rank(value) - 1)
    shape = e.op("Concat", e.dim(query, 1), e.dim(query, 0), e.dim(query, 2), size, axis=0)
    return e.transpose(e.reshape(flat, shape), [1, 0, 2, 3])
