"""What a plan carries of candidates, and the checks before any of it is used: it may be from anybody."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from dovetail.errors import PlanCorruptError
from dovetail.provider.interfaces import CarriedCandidates, StoredPartition
from dovetail_cuda.choose.records import (
    ConvolutionOffer,
    NodeNote,
    OpenLaunches,
    OperandRecord,
    QuestionRecord,
    WayRecord,
    list_code,
    select_ways,
)
from dovetail_cuda.run.convolutions import ConvPlan, check_convolution
from dovetail_cuda.run.payload import (
    BufferRecord,
    KernelLaunch,
    LaunchList,
    Product,
    ProductLaunch,
    check_kernels,
    check_launches,
    check_product,
    list_counts,
)
from dovetail_cuda.run.records import Record, require

__all__ = [
    "CandidatePayload",
    "check_way",
    "count_bytes",
    "count_ways",
    "limit_candidates",
    "pack_candidates",
    "read_candidates",
]

_VERSION: Final = "cuda candidates 2"
_MOST_CHARACTERS: Final = 4096
_MOST_RANK: Final = 64
_MOST_BYTES: Final = 2**46
"""No memory of a device is as large."""
_KINDS: Final = ("input", "weight", "output")
_BUFFER_KINDS: Final = ("input", "output", "weight", "temporary", "zeroed")
_WHOLE_TYPES: Final = (f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_TYPES: Final = frozenset(("float16", "bfloat16", "float32", "float64", "bool", *_WHOLE_TYPES))


class CandidatePayload(Record, frozen=True, kw_only=True):
    """The open choices of a partition."""

    version: str = ""
    capability: int
    """What kernels are compiled for."""
    variants: list[OpenLaunches]
    """For each variant of the partition."""
    others: list[NodeNote] = msgspec.field(default_factory=list)
    """What people are told of launches for any shapes, which have no choices."""


# writing


def limit_candidates(
    payload: CandidatePayload, chosen: Sequence[Sequence[int]], code: Mapping[str, bytes], limit: int
) -> CandidatePayload:
    """As many candidates as fit, the first of every question before the second.

    Args:
        payload: All of them.
        chosen: For each variant and question the way that the partition has; it stays, and takes no room.
        code: Of all kernels, by name.
        limit: The most bytes.
    """
    kept = _select(payload.variants, chosen, code, limit - len(_encode(payload)))
    variants = [select_ways(each, ways) for each, ways in zip(payload.variants, kept, strict=True)]
    return msgspec.structs.replace(payload, variants=variants)


def pack_candidates(
    payload: CandidatePayload, code: Mapping[str, bytes], present: Container[str]
) -> CarriedCandidates | None:
    """Candidates as a plan carries them, with the code that is not present; None where there is nothing to choose."""
    if not any(len(question.ways) > 1 for each in payload.variants for question in each.questions):
        return None
    ways = [(way, each) for each in payload.variants for question in each.questions for way in question.ways]
    needed = sorted({name for way, each in ways for name in list_code(way.launches, each.kernels)})
    return CarriedCandidates(
        payload=_encode(payload), code={name: code[name] for name in needed if name not in present}
    )


def count_ways(payload: CandidatePayload) -> int:
    """How many candidates there are in all."""
    return sum(len(question.ways) for each in payload.variants for question in each.questions)


def _encode(payload: CandidatePayload) -> bytes:
    return msgspec.msgpack.encode(msgspec.structs.replace(payload, version=_VERSION))


def _list_chosen(launches: OpenLaunches, chosen: Sequence[int]) -> list[str]:
    ways = [question.ways[number] for question, number in zip(launches.questions, chosen, strict=True)]
    return [name for way in ways for name in list_code(way.launches, launches.kernels)]


def _select(
    variants: Sequence[OpenLaunches], chosen: Sequence[Sequence[int]], code: Mapping[str, bytes], room: int
) -> list[list[list[int]]]:
    """For each question of each variant the ways that are carried, in their order."""
    kept = [[{number} for number in ways] for ways in chosen]
    seen = {name for each, ways in zip(variants, chosen, strict=True) for name in _list_chosen(each, ways)}
    questions = [(v, q, question) for v, each in enumerate(variants) for q, question in enumerate(each.questions)]
    for number in range(max((len(question.ways) for _, _, question in questions), default=0)):
        for v, q, question in questions:
            if number < len(question.ways):
                names = set(list_code(question.ways[number].launches, variants[v].kernels)) - seen
                size = sum(len(code[name]) for name in names)
                if size <= room:
                    room -= size
                    seen |= names
                    kept[v][q].add(number)
    return [[sorted(numbers) for numbers in questions] for questions in kept]


# reading


def read_candidates(stored: StoredPartition, num_variants: int) -> CandidatePayload:
    """The open choices of a partition.

    Raises:
        PlanCorruptError: They are of another version, damaged, or say something that cannot be.
    """
    where = f"step {stored.name[:200]!a}"
    try:
        require(stored.candidates is not None, "there are none")
        payload = msgspec.msgpack.decode(stored.candidates.payload, type=CandidatePayload)  # type: ignore[union-attr]
        require(payload.version == _VERSION, f"they are {payload.version[:60]!a} and not {_VERSION!a}")
        require(len(payload.variants) == num_variants, "they are for other shapes")
        for each in payload.variants:
            _check_open(each, stored)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
        raise PlanCorruptError(
            f"the candidates of a partition cannot be read: {error}", where=where, fix="build the plan again"
        ) from None
    return payload


def _check_open(launches: OpenLaunches, stored: StoredPartition) -> None:
    check_kernels(launches.kernels, stored)
    for buffer in launches.buffers:
        require(buffer.kind in _BUFFER_KINDS and 0 <= buffer.size_bytes < _MOST_BYTES, "there is no such buffer")
    for question in launches.questions:
        _check_question(question, launches)
    for task in launches.tasks:
        require(0 <= task.question < len(launches.questions), "there is no such question")
        question = launches.questions[task.question]
        require(len(task.places) == question.num_roles, "a task has other places")
        require(all(0 <= place.buffer < len(launches.buffers) for place in task.places), "there is no such buffer")
        sizes = [launches.buffers[place.buffer].size_bytes - place.offset for place in task.places]
        fits = all(_count_bytes(each) <= size for each, size in zip(question.operands, sizes, strict=False))
        require(fits, "an operand is larger than its buffer")


def _check_question(question: QuestionRecord, launches: OpenLaunches) -> None:
    names = [way.name for way in question.ways]
    require(names and len(set(names)) == len(names), "the ways of a question have no names of their own")
    require(all(0 < len(text) <= _MOST_CHARACTERS for text in (question.text, *names)), "there is no such name")
    has_operands = len(question.operands) == question.num_roles
    require(has_operands or (not question.operands and len(names) == 1), "a question has other operands")
    for operand in question.operands:
        require(operand.kind in _KINDS and operand.dtype in _TYPES, "there is no such operand")
        require(0 <= operand.count < _MOST_BYTES, "an operand has no such size")
    for way in question.ways:
        _check_numbers(way, question, launches)
    if question.reference is not None:
        _check_reference(question)
    if question.convolution is not None:
        _check_offer(question.convolution, question)


def _check_numbers(way: WayRecord, question: QuestionRecord, launches: OpenLaunches) -> None:
    """What must hold before a way is completed: its numbers lead somewhere."""
    count = question.num_roles + len(way.temporaries)
    require(math.isfinite(way.tolerance) and 0 <= way.tolerance <= 1, "there is no such tolerance")
    require(0 <= way.scratch_bytes < _MOST_BYTES, "there is no such scratch memory")
    require(way.rank is None or 0 <= way.rank < _MOST_RANK, "there is no such algorithm")
    require(all(0 <= each.size_bytes < _MOST_BYTES for each in way.temporaries), "there is no such temporary")
    for launch in way.launches:
        require(all(0 <= role < count for role in launch.buffers), "there is no such role")
        is_same = not launch.offsets or len(launch.offsets) == len(launch.buffers)
        require(is_same and all(offset >= 0 for offset in launch.offsets), "there are other offsets")
        kernel = launch.kernel if isinstance(launch, KernelLaunch) else 0
        require(0 <= kernel < max(len(launches.kernels), 1), "there is no such kernel")
        if isinstance(launch, ProductLaunch):
            _check_sizes(launch.product)


def _check_sizes(product: Product) -> None:
    check_product(product)
    list(list_counts(product))


def _check_reference(question: QuestionRecord) -> None:
    """Whether NumPy reads and writes inside of the operands."""
    assert question.reference is not None  # noqa: S101 - asked before
    product, roles = question.reference.product, question.reference.roles
    check_product(product)
    require(all(0 <= role < len(question.operands) for role in roles), "there is no such role")
    operands = [question.operands[role] for role in roles]
    require(len(operands) == 3 + product.has_bias + product.has_residual, "a product has other operands")
    counts = list(list_counts(product))
    fits = all(each.count >= count for each, count in zip(operands, counts, strict=True))
    require(fits and all(each.dtype == product.dtype for each in operands), "a product has other operands")
    kinds = [each.kind == "output" for each in question.operands]
    require(operands[-1].kind == "output" and sum(kinds) == 1, "a product has other results")


def _check_offer(offer: ConvolutionOffer, question: QuestionRecord) -> None:
    """What must hold before a library is asked; what it offers is checked like any way."""
    counts = check_convolution(offer.convolution, ConvPlan(tag="", engine=0))
    require(len(offer.roles) == len(counts), "a convolution has other operands")
    require(all(0 <= role < len(question.operands) for role in offer.roles), "there is no such role")
    require(0 <= offer.image_offset < _MOST_BYTES, "there is no such offset")
    require(math.isfinite(offer.tolerance) and 0 <= offer.tolerance <= 1, "there is no such tolerance")


def check_way(way: WayRecord, question: QuestionRecord, launches: OpenLaunches, stored: StoredPartition) -> None:
    """Check a way that is complete, over the memory that a trial gives it.

    Raises:
        ValueError: Something cannot be.
    """
    sizes = [(_count_bytes(each), "arena") for each in question.operands]
    sizes += [(each.size_bytes, "zeroed" if each.is_zeroed else "arena") for each in way.temporaries]
    buffers = [BufferRecord(kind=kind, size_bytes=size) for size, kind in sizes]
    arena_bytes = max((size for size, _ in sizes), default=0)
    tried = LaunchList(
        kernels=launches.kernels,
        buffers=buffers,
        launches=way.launches,
        output_shapes=[],
        arena_bytes=arena_bytes,
        workspace_bytes=arena_bytes + way.scratch_bytes,
    )
    check_launches(tried, replace(stored, output_specs=()))
    for launch in way.launches:
        if not isinstance(launch, KernelLaunch) and launch.buffers[-1] < len(question.operands):
            is_output = question.operands[launch.buffers[-1]].kind == "output"
            require(is_output, "a library writes to an input or a weight")


def count_bytes(question: QuestionRecord) -> int:
    """The memory that a trial takes for the operands of a question."""
    return sum(_count_bytes(operand) for operand in question.operands)


def _count_bytes(operand: OperandRecord) -> int:
    import ml_dtypes  # noqa: F401 - has NumPy know the names of its types
    import numpy as np

    return int(operand.count * np.dtype(operand.dtype).itemsize)
