"""A program while it is lowered: what steps read, and in which place they want it.

Each stage of ``lowering`` takes a draft and gives another; nothing is changed in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from dovetail.expr import Dim
from dovetail.plan.manifest import StepRecord, SymbolRecord, ValueRecord
from dovetail.tensors import TensorSpec

__all__ = ["DraftProgram", "DraftStep", "PortSymbol", "Read", "change_kind", "place_of"]


def place_of(value: TensorSpec) -> TensorSpec:
    """How and where a value lies, without its shape: two values of one tensor differ in nothing else."""
    return TensorSpec(dtype=value.dtype, format=value.format, scale=value.scale, memory=value.memory, type=value.type)


def change_kind(value: ValueRecord, kind: str) -> ValueRecord:
    """A value of another kind; only what is planned has a size of its own."""
    return msgspec.structs.replace(value, kind=kind, size_bytes=None)


@dataclass(frozen=True, kw_only=True)
class Read:
    """One value that a step reads."""

    value: int
    """Its number; -1 for an input that is absent."""
    place: TensorSpec | None = None
    """How and where it is wanted; None for wherever it lies."""


@dataclass(frozen=True, kw_only=True)
class PortSymbol:
    """A number that the shapes of a step depend on: a dimension of a value that it reads, or an element."""

    name: str
    source: str
    """"dim" or "element"."""
    port: str
    """"inputs", "shape_inputs" or "outputs"."""
    position: int
    index: int


@dataclass(frozen=True, kw_only=True)
class DraftStep:
    """A step whose record has no numbers of values yet."""

    record: StepRecord
    inputs: tuple[Read, ...]
    outputs: tuple[int, ...]
    shape_inputs: tuple[Read, ...] = ()
    captures: tuple[tuple[Read, ...], ...] = ()
    """For each body what it reads from outside, in the order of its own captures."""
    symbols: tuple[PortSymbol, ...] = ()
    aliases: tuple[int, ...] = ()
    """For each output the input whose memory it gets, or -1."""

    def overwritten(self) -> list[int]:
        """The values that it writes over."""
        return [self.inputs[source].value for source in self.aliases if source >= 0]

    def reads(self) -> Iterator[Read]:
        """Everything that it reads, in order."""
        yield from self.inputs
        yield from self.shape_inputs
        for captured in self.captures:
            yield from captured


@dataclass(frozen=True, kw_only=True)
class DraftProgram:
    """Values and the steps over them."""

    values: Sequence[ValueRecord]
    dims: Sequence[tuple[Dim, ...] | None]
    """What the network knows of the shape of each value, also where its record says nothing."""
    origins: Sequence[int]
    """For each value the one that it is a copy of, in another place; itself for the others."""
    inputs: Sequence[int]
    steps: Sequence[DraftStep]
    outputs: Sequence[Read]
    symbols: Sequence[SymbolRecord] = ()
    """What shapes depend on before any step has run."""
    captured: Sequence[int] = ()
    """Values of a body that come from outside."""
    is_body: bool = False
