"""Handles of the stand-ins: streams and events, of which all work is done when a call returns."""

from __future__ import annotations

import time

__all__ = ["Handle", "cudaEvent_t", "cudaStream_t"]


class Handle:
    """A number that callers pass around, as cuda-python's handles are."""

    def __init__(self, init_value: int = 0) -> None:
        self._value = int(init_value)

    def __int__(self) -> int:
        return self._value

    __index__ = __int__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int | Handle) and int(other) == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._value:#x}>"

    def getPtr(self) -> int:
        """The number."""
        return self._value


class cudaStream_t(Handle):
    """A stream: always 0, since work is done at once."""


class cudaEvent_t(Handle):
    """A point in a stream, which takes the time when it is recorded."""

    def __init__(self, init_value: int = 0) -> None:
        super().__init__(init_value)
        self.time_ns: int | None = None

    def record(self) -> None:
        """Take the time."""
        self.time_ns = time.perf_counter_ns()

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other
