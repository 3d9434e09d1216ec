"""A partition for all shapes of a profile: launches for some shapes, and a template of launches for all others.

Sizes in a template are expressions over *symbols*, the dimensions that inputs leave open. Binding reads the symbols
from the shapes of inputs; where they are those of a variant its launches are used, else the template's with every
expression worked out. What is read may be from anybody: what comes of a template is checked like launches that a plan
stores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from dovetail.errors import DovetailError, InputError, PlanCorruptError
from dovetail.expr import compile_expr, decode_expr
from dovetail.provider.interfaces import StoredPartition
from dovetail.provider.memory.arena import Span, align, plan_offsets
from dovetail_cuda.run.payload import (
    VERSION,
    BufferRecord,
    KernelLaunch,
    KernelRecord,
    LaunchList,
    Record,
    check_kernels,
    check_launches,
    require,
)

__all__ = [
    "BufferTemplate",
    "KernelTemplate",
    "LaunchTemplate",
    "Payload",
    "SymbolRecord",
    "Variant",
    "count_workspace",
    "read_payload",
    "read_symbols",
    "resolve",
    "write_payload",
]

Amount = int | str | list[Any]
"""A number, or an expression as ``dovetail.expr`` stores it."""
_MOST_SYMBOLS: Final = 64
_MOST_VARIANTS: Final = 64


class SymbolRecord(Record, frozen=True, kw_only=True):
    """A dimension that varies, and where it is read."""

    name: str
    input: int
    axis: int
    low: int
    high: int | None
    """None where there is no bound."""


class Variant(Record, frozen=True, kw_only=True):
    """Launches for one set of shapes."""

    values: list[int] = msgspec.field(default_factory=list)
    """What the symbols are then, in order."""
    launches: LaunchList


class BufferTemplate(Record, frozen=True, kw_only=True):
    """Memory whose size may vary."""

    kind: str
    size_bytes: Amount
    number: int = 0
    name: str = ""
    offset: int | None = None
    """Where it lies in the arena for all shapes; None where that is decided for each."""
    first: int = 0
    last: int = 0
    """The launches that use it first and last."""


class KernelTemplate(Record, frozen=True, kw_only=True):
    """One kernel over buffers and sizes."""

    kernel: int
    grid: tuple[Amount, Amount, Amount]
    buffers: list[int]
    offsets: list[Amount] = msgspec.field(default_factory=list)
    sizes: list[Amount] = msgspec.field(default_factory=list)
    layers: list[str] = msgspec.field(default_factory=list)


class LaunchTemplate(Record, frozen=True, kw_only=True):
    """Everything a partition does for any shapes, in order."""

    kernels: list[KernelRecord]
    buffers: list[BufferTemplate]
    launches: list[KernelTemplate]
    output_shapes: list[list[Amount]]
    arena_bytes: int | None
    """Enough for all shapes; None where they have no bounds."""


class Payload(Record, frozen=True, kw_only=True):
    """What a plan stores of a partition."""

    variants: list[Variant] = msgspec.field(default_factory=list)
    symbols: list[SymbolRecord] = msgspec.field(default_factory=list)
    template: LaunchTemplate | None = None


def write_payload(payload: Payload) -> bytes:
    """The bytes that a plan stores."""
    return msgspec.msgpack.encode(payload)


def read_payload(stored: StoredPartition) -> Payload:
    """What a partition does.

    Raises:
        PlanCorruptError: It is of another version, damaged, or says something that cannot be.
    """
    where = f"step {stored.name[:200]!a}"
    if stored.version != VERSION:
        raise PlanCorruptError(
            "a partition of another format",
            where=where,
            expected=VERSION,
            got=ascii(stored.version[:60]),
            fix="build the plan again, or install the version that built it",
        )
    try:
        payload = msgspec.msgpack.decode(stored.payload, type=Payload)
        _check(payload, stored)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
        raise PlanCorruptError(
            f"a partition cannot be read: {error}", where=where, fix="build the plan again"
        ) from None
    return payload


def _check(payload: Payload, stored: StoredPartition) -> None:
    require(payload.variants or payload.template, "there is nothing to run")
    require(len(payload.variants) <= _MOST_VARIANTS and len(payload.symbols) <= _MOST_SYMBOLS, "there is too much")
    require(payload.symbols or payload.variants, "nothing says which launches to use")
    for symbol in payload.symbols:
        require(0 <= symbol.input < len(stored.input_specs) and 0 <= symbol.axis < 64, "there is no such dimension")
    for variant in payload.variants:
        require(len(variant.values) == len(payload.symbols), "a variant is for other shapes")
        check_launches(variant.launches, stored)
    if payload.template is not None:
        check_kernels(payload.template.kernels, stored)
        arena_bytes = payload.template.arena_bytes
        require(arena_bytes is None or 0 <= arena_bytes < 2**48, "the arena has no such size")


def count_workspace(payload: Payload) -> int:
    """The workspace that is enough for all shapes whose memory is planned."""
    template = payload.template
    sizes = [variant.launches.workspace_bytes for variant in payload.variants]
    return max([*sizes, *([] if template is None else [template.arena_bytes or 0])])


def read_symbols(symbols: Sequence[SymbolRecord], shapes: Sequence[Sequence[int] | None], where: str) -> list[int]:
    """What the symbols are for shapes of inputs."""
    values = []
    for symbol in symbols:
        shape = shapes[symbol.input] if symbol.input < len(shapes) else None
        value = None if shape is None or symbol.axis >= len(shape) else shape[symbol.axis]
        end = "any" if symbol.high is None else symbol.high
        if value is None or value < symbol.low or (symbol.high is not None and value > symbol.high):
            raise InputError(
                f"dimension {symbol.name!a} is not one that the partition was built for",
                where=where,
                expected=f"{symbol.low} to {end}",
                got=value,
            )
        values.append(value)
    return values


def resolve(payload: Payload, values: Sequence[int], stored: StoredPartition) -> LaunchList:
    """The launches of the template for what the symbols are.

    Raises:
        PlanCorruptError: Something comes of it that cannot be.
    """
    template, names = payload.template, [symbol.name for symbol in payload.symbols]
    where = f"step {stored.name[:200]!a}"
    try:
        require(template is not None, "there are no launches for such shapes")
        made = _Resolver(dict(zip(names, values, strict=True))).resolve(template)  # type: ignore[arg-type]
        check_launches(made, stored)
    except (ValueError, RecursionError) as error:
        raise PlanCorruptError(
            f"a partition cannot be bound: {error}", where=where, fix="build the plan again"
        ) from None
    return made


class _Resolver:
    """Works expressions out; equal ones once."""

    def __init__(self, values: Mapping[str, int]) -> None:
        self._names, self._values = list(values), list(values.values())
        self._known: dict[str, int] = {}

    def resolve(self, template: LaunchTemplate) -> LaunchList:
        sizes = [self._find(buffer.size_bytes) for buffer in template.buffers]
        offsets, arena_bytes = _place(template, sizes)
        buffers = [
            BufferRecord(kind=b.kind, size_bytes=size, number=b.number, name=b.name, offset=offset)
            for b, size, offset in zip(template.buffers, sizes, offsets, strict=True)
        ]
        launches = [self._launch(each) for each in template.launches]
        return LaunchList(
            kernels=template.kernels,
            buffers=buffers,
            launches=[launch for launch in launches if all(launch.grid)],  # else there are no elements
            output_shapes=[[self._find(size) for size in shape] for shape in template.output_shapes],
            arena_bytes=arena_bytes,
            workspace_bytes=arena_bytes,
        )

    def _launch(self, template: KernelTemplate) -> KernelLaunch:
        x, y, z = (self._find(size) for size in template.grid)
        return KernelLaunch(
            kernel=template.kernel,
            grid=(x, y, z),
            buffers=template.buffers,
            offsets=[self._find(offset) for offset in template.offsets],
            sizes=[self._find(size) for size in template.sizes],
            layers=template.layers,
        )

    def _find(self, amount: Amount) -> int:
        if isinstance(amount, int):
            return amount
        key = repr(amount)
        if key not in self._known:
            self._known[key] = self._evaluate(amount)
        return self._known[key]

    def _evaluate(self, amount: Amount) -> int:
        try:
            evaluate: Callable[[Sequence[int]], int] = compile_expr(decode_expr(amount), self._names)
            return evaluate(self._values)
        except DovetailError as error:
            raise ValueError(error.what) from None


def _place(template: LaunchTemplate, sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where buffers lie in the arena, and how large it is: as the template says, or by their lives."""
    places = [buffer.offset or 0 for buffer in template.buffers]
    if template.arena_bytes is not None:
        return places, template.arena_bytes
    inside = [number for number, buffer in enumerate(template.buffers) if buffer.kind == "arena"]
    spans = [Span(sizes[n], template.buffers[n].first, template.buffers[n].last) for n in inside]
    offsets, arena_bytes = plan_offsets(spans)
    for number, offset in zip(inside, offsets, strict=True):
        places[number] = offset
    return places, align(arena_bytes)
