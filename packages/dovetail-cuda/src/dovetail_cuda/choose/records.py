"""Questions as records: the compiled ways of each, and the tasks that ask them over the buffers of a partition.

A build has them for as long as it chooses. A plan may carry them, so that the choice can be made on a device that was
not there (``choose.carried``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from dovetail_cuda.run.convolutions import Convolution
from dovetail_cuda.run.payload import ConvLaunch, KernelLaunch, KernelRecord, Launches, Product
from dovetail_cuda.run.records import Record

__all__ = [
    "ConvolutionOffer",
    "NodeNote",
    "OpenBuffer",
    "OpenLaunches",
    "OperandRecord",
    "PlaceRecord",
    "QuestionRecord",
    "ReferenceRecord",
    "TaskRecord",
    "TemporaryRecord",
    "UsedKernels",
    "WayRecord",
    "list_code",
    "select_ways",
]


class OperandRecord(Record, frozen=True, kw_only=True):
    """Memory of a question, as a trial makes it."""

    count: int
    dtype: str
    kind: str
    """``input``, ``weight`` or ``output``."""


class TemporaryRecord(Record, frozen=True, kw_only=True):
    """Memory that a way needs besides, for as long as it runs."""

    size_bytes: int
    is_zeroed: bool = False
    """Whether it is zero before the first run, and left so by every run."""


class WayRecord(Record, frozen=True, kw_only=True):
    """One way to do what is asked; its launches number the roles of the question, then its temporaries."""

    name: str
    launches: list[Launches]
    temporaries: list[TemporaryRecord] = msgspec.field(default_factory=list)
    scratch_bytes: int = 0
    tolerance: float = 0.0
    rank: int | None = None
    """Which of a library's algorithms its products use, the most promising being 0; None where it uses no library."""


class ReferenceRecord(Record, frozen=True, kw_only=True):
    """A question that is a product, whose right results NumPy tells."""

    product: Product
    roles: list[int]
    """The roles of its buffers, in the order that a launch has them."""


class ConvolutionOffer(Record, frozen=True, kw_only=True):
    """A question that is a convolution, for which cuDNN is asked on the device."""

    convolution: Convolution
    roles: list[int]
    """The roles of its buffers, in the order that a launch has them."""
    image_offset: int = 0
    """Bytes of the first buffer before the image."""
    tolerance: float = 0.0


class QuestionRecord(Record, frozen=True, kw_only=True):
    """What is to be done, and how it can be done."""

    text: str
    """Everything that decides the time."""
    num_roles: int
    operands: list[OperandRecord] = msgspec.field(default_factory=list)
    """For each role; none where there is nothing to choose."""
    ways: list[WayRecord]
    """In the order they are worth trying."""
    reference: ReferenceRecord | None = None
    convolution: ConvolutionOffer | None = None


class PlaceRecord(Record, frozen=True, kw_only=True):
    """A buffer by its number, and the bytes in it before what a role means."""

    buffer: int
    offset: int = 0


class NodeNote(Record, frozen=True, kw_only=True):
    """What people are told of a task."""

    name: str
    op: str
    layers: list[str] = msgspec.field(default_factory=list)
    made_by: str = ""
    tactic: str = ""


class TaskRecord(Record, frozen=True, kw_only=True):
    """A question by its number, over buffers."""

    question: int
    places: list[PlaceRecord]
    """For each role."""
    note: NodeNote


class OpenBuffer(Record, frozen=True, kw_only=True):
    """Memory of a partition that has no place yet."""

    kind: str
    """``input``, ``output``, ``weight``, ``temporary`` or ``zeroed``."""
    size_bytes: int
    number: int = 0
    name: str = ""


class OpenLaunches(Record, frozen=True, kw_only=True):
    """Everything a partition does for one set of shapes, before ways are chosen."""

    kernels: list[KernelRecord]
    """Those of all ways."""
    buffers: list[OpenBuffer]
    questions: list[QuestionRecord]
    tasks: list[TaskRecord]
    """In the order they run."""
    output_shapes: list[list[int]]
    is_cold: bool = False
    """Whether trials are to find weights in no cache."""


class UsedKernels:
    """Those of some kernels that launches use, numbered anew in the order they are met."""

    def __init__(self, kernels: Sequence[KernelRecord]) -> None:
        self.records: list[KernelRecord] = []
        self._all = kernels
        self._numbers: dict[int, int] = {}

    def renumber(self, launches: Iterable[Launches]) -> list[Launches]:
        """Launches with the new numbers."""
        return [
            msgspec.structs.replace(each, kernel=self._find(each.kernel)) if isinstance(each, KernelLaunch) else each
            for each in launches
        ]

    def _find(self, number: int) -> int:
        if number not in self._numbers:
            self._numbers[number] = len(self.records)
            self.records.append(self._all[number])
        return self._numbers[number]


def list_code(launches: Iterable[Launches], kernels: Sequence[KernelRecord]) -> list[str]:
    """The names of the code that launches need, each once."""
    names: dict[str, None] = {}
    for launch in launches:
        if isinstance(launch, KernelLaunch):
            names[kernels[launch.kernel].code] = None
        elif isinstance(launch, ConvLaunch):
            names[launch.code] = None
    return list(names)


def select_ways(launches: OpenLaunches, kept: Sequence[Sequence[int]]) -> OpenLaunches:
    """The same with some ways of each question, by their numbers."""
    used = UsedKernels(launches.kernels)
    questions = []
    for question, numbers in zip(launches.questions, kept, strict=True):
        ways = [question.ways[number] for number in numbers]
        renumbered = [msgspec.structs.replace(way, launches=used.renumber(way.launches)) for way in ways]
        questions.append(msgspec.structs.replace(question, ways=renumbered))
    return msgspec.structs.replace(launches, kernels=used.records, questions=questions)
