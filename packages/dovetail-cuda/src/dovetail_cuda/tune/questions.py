"""What is asked of the tuner: a question, the ways to answer it, and the memory that they are tried over.

Memory has *roles* here (``left``, ``bias``, ``result``), so that equal regions of different layers are one question. A
task binds the roles of a question to the buffers of its region.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from dovetail_cuda.compile.request import KernelRequest
from dovetail_cuda.graph.regions import Region
from dovetail_cuda.run.payload import KernelLaunch, Launches

__all__ = ["Draft", "KernelDraft", "Kernels", "Operand", "Place", "Question", "Task", "Temporary", "Way"]


class Kernels(Protocol):
    """Kernels that are compiled, by number."""

    def find(self, request: KernelRequest) -> int:
        """The number of a kernel."""

    def keep(self, code: bytes) -> str:
        """The name of code that a library has made."""


@dataclass(frozen=True, kw_only=True)
class Operand:
    """Memory with a role, as a trial makes it."""

    count: int
    dtype: str
    kind: str
    """``input``, ``weight`` or ``output``."""
    array: Any = None
    """The numbers of an input or weight; by default any."""


@dataclass(frozen=True, kw_only=True)
class Temporary:
    """Memory that a way needs besides, for as long as it runs."""

    size_bytes: int
    is_zeroed: bool = False
    """Whether it is zero before the first run, and left so by every run."""


@dataclass(frozen=True, kw_only=True)
class Draft(ABC):
    """One launch, over roles."""

    roles: tuple[str, ...]
    """The role of each buffer, in the order the launch has them."""

    @property
    def requests(self) -> Sequence[KernelRequest]:
        """Kernels that must be compiled for it."""
        return ()

    @property
    def scratch_bytes(self) -> int:
        """Memory that it needs of what all launches share."""
        return 0

    @abstractmethod
    def make_launch(self, kernels: Kernels, buffers: list[int], offsets: list[int], layers: list[str]) -> Launches:
        """The launch over buffers by number, as a plan stores it."""


@dataclass(frozen=True, kw_only=True)
class KernelDraft(Draft):
    """A kernel of ours."""

    request: KernelRequest
    grid: tuple[int, int, int]
    sizes: tuple[int, ...] = ()
    """What it is called with after its buffers."""

    @property
    def requests(self) -> Sequence[KernelRequest]:
        """The kernel."""
        return (self.request,)

    def make_launch(self, kernels: Kernels, buffers: list[int], offsets: list[int], layers: list[str]) -> Launches:
        """The launch of the kernel."""
        number, sizes = kernels.find(self.request), list(self.sizes)
        return KernelLaunch(kernel=number, grid=self.grid, buffers=buffers, offsets=offsets, sizes=sizes, layers=layers)


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to do what is asked: launches one after the other."""

    name: str
    """What tells it from the others; plans and timing caches store it."""
    drafts: Sequence[Draft]
    temporaries: Mapping[str, Temporary] = field(default_factory=dict)
    """By role."""
    tolerance: float = 0.0
    """What its arithmetic may be off more than the types of its results say."""

    @property
    def requests(self) -> list[KernelRequest]:
        """Kernels that must be compiled for it."""
        return [request for draft in self.drafts for request in draft.requests]

    @property
    def scratch_bytes(self) -> int:
        """Memory that it needs of what all launches share."""
        return max((draft.scratch_bytes for draft in self.drafts), default=0)

    def rename(self, roles: Mapping[str, str], name: str | None = None) -> Way:
        """The same with other roles, as part of another question."""
        drafts = [replace(each, roles=tuple(roles.get(role, role) for role in each.roles)) for each in self.drafts]
        temporaries = {roles.get(role, role): each for role, each in self.temporaries.items()}
        return replace(self, name=name or self.name, drafts=drafts, temporaries=temporaries)


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is to be done, completely, and how it can be done."""

    text: str
    """Everything that decides the time; equal texts are one question."""
    operands: Mapping[str, Operand]
    """By role."""
    make_ways: Callable[[], Sequence[Way]]
    """The ways in the order they are worth trying; called once for all equal questions."""
    reference: Callable[[Mapping[str, Any]], Sequence[Any] | None] = lambda arrays: None
    """The right outputs for the arrays of inputs and weights by role, where they are known."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A buffer by its name, and the bytes in it before what a role means."""

    buffer: str
    offset: int = 0


@dataclass(frozen=True, kw_only=True)
class Task:
    """A question that a region asks, with its buffers."""

    region: Region
    question: Question
    places: Mapping[str, Place]
    """By role; the temporaries of ways get memory of their own."""
