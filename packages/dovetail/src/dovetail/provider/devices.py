"""Devices as providers describe them: memory, streams and events, captured graphs, and what a profile tells."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Flag
from typing import Any, Final, Protocol, runtime_checkable

__all__ = [
    "HOST_MEMORY",
    "CapturedGraph",
    "Device",
    "DeviceArray",
    "Event",
    "MemoryAccess",
    "MemoryInfo",
    "ProfileEvent",
    "Stream",
]


@dataclass(frozen=True, kw_only=True)
class Device:
    """Something a provider can run on."""

    name: str
    kind: str
    """"cpu", "gpu" or "npu"."""
    fingerprint: str
    """Equal on two machines exactly when a tuned plan of one is optimal on the other."""
    ordinal: int = 0
    memory_bytes: int | None = None
    """How much memory it has; None where that is not known."""
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    """What else builds and people may want to know, such as ``compute_capability`` and ``multiprocessors``."""


@dataclass(frozen=True, kw_only=True)
class MemoryInfo:
    """A kind of memory: two values with the same one can be read by the same steps."""

    name: str
    is_host: bool = False
    """Whether NumPy can read it."""
    alignment_bytes: int = 256
    ordinal: int = 0


class MemoryAccess(Flag):
    """Processors that can read and write the memory at an address; both for pinned and managed memory."""

    HOST = 1
    DEVICE = 2


@runtime_checkable
class DeviceArray(Protocol):
    """What the runtime looks at in an array of a device: elements lie row by row from the address on.

    Two elements of a four-bit type share a byte.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Its dimensions."""
        ...

    @property
    def dtype(self) -> Any:
        """Its element type, as NumPy has it."""
        ...

    @property
    def address(self) -> int:
        """Where its first element is, on the device."""
        ...


HOST_MEMORY: Final = MemoryInfo(name="host", is_host=True)
"""Plain memory of the process."""


class Event(ABC):
    """A point in a stream."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until the stream has come here."""

    @abstractmethod
    def is_done(self) -> bool:
        """Whether it has."""

    def elapsed_us(self, earlier: Event) -> float:
        """Microseconds of the device since an earlier event; both were recorded to be timed and are done."""
        raise NotImplementedError(f"{type(self).__name__} takes no times")


class Stream(ABC):
    """A queue of work that runs in order."""

    @property
    @abstractmethod
    def handle(self) -> int:
        """What plugins get as their stream."""

    @property
    def current(self) -> Stream:
        """The provider's own stream that work goes to now; a context's stream may stand for another in each run."""
        return self

    @abstractmethod
    def record(self, *, is_timed: bool = False) -> Event:
        """An event for what was put on the queue so far; one that is timed may cost more."""

    @abstractmethod
    def wait(self, event: Event) -> None:
        """Have later work wait for an event of another stream."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until the queue is empty."""

    def close(self) -> None:
        """Give the queue back."""
        return


class CapturedGraph(ABC):
    """Work that was recorded once and can be repeated at little cost, over the same memory."""

    @abstractmethod
    def replay(self, stream: Stream) -> None:
        """Put all of it on a stream again."""

    def update(self, recorded: CapturedGraph) -> bool:
        """Do from now on what another recording does, which is then closed; False where a device cannot."""
        return False

    def close(self) -> None:
        """Give it back."""
        return


@dataclass(frozen=True, kw_only=True)
class ProfileEvent:
    """Something a device did, or a part of a compiled partition."""

    name: str
    start_us: float
    """On the clock of ``time.perf_counter``."""
    duration_us: float
    stream: int = 0
    layer: str = ""
    """The step that it is a part of, where the provider knows."""
    kind: str = ""
    """What it is, such as the operator."""
    nodes: tuple[str, ...] = ()
    """The nodes of the step's report that it does, by name, where the provider knows."""
    thread: int = 0
    """The thread of the process that did it; 0 where that is not known."""
