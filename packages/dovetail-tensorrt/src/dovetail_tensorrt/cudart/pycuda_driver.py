"""Stands in for ``pycuda.driver``: allocations, copies, streams and events over memory of the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail_tensorrt.cudart.handles import cudaEvent_t
from dovetail_tensorrt.cudart.memory import BLOCKS, size_of

__all__ = [
    "Context",
    "Device",
    "DeviceAllocation",
    "Error",
    "Event",
    "LogicError",
    "MemoryError",
    "RuntimeError",
    "Stream",
    "ctx_flags",
    "event_flags",
    "from_device",
    "from_device_like",
    "get_driver_version",
    "get_version",
    "host_alloc_flags",
    "init",
    "managed_empty",
    "managed_zeros",
    "mem_alloc",
    "mem_alloc_like",
    "mem_attach_flags",
    "mem_get_info",
    "memcpy_dtod",
    "memcpy_dtod_async",
    "memcpy_dtoh",
    "memcpy_dtoh_async",
    "memcpy_htod",
    "memcpy_htod_async",
    "memset_d8",
    "memset_d8_async",
    "memset_d32",
    "pagelocked_empty",
    "pagelocked_empty_like",
    "pagelocked_zeros",
    "pagelocked_zeros_like",
    "register_host_memory",
    "start_profiler",
    "stop_profiler",
    "to_device",
]


class Error(Exception):
    """What went wrong in a call."""


class LogicError(Error):
    """A call that can never be right."""


class MemoryError(Error):  # noqa: A001 - the package's name
    """There is not so much memory."""


class RuntimeError(Error):  # noqa: A001 - the package's name
    """A call that failed while it ran."""


class event_flags:
    """Flags of events, none of which changes anything."""

    DEFAULT = 0
    BLOCKING_SYNC = 1
    DISABLE_TIMING = 2


class mem_attach_flags:
    """Flags of managed memory, none of which changes anything."""

    GLOBAL = 1
    HOST = 2
    SINGLE = 4


class ctx_flags:
    """Flags of contexts, none of which changes anything."""

    SCHED_AUTO = 0
    SCHED_SPIN = 1
    SCHED_YIELD = 2
    SCHED_BLOCKING_SYNC = 4
    MAP_HOST = 8


class host_alloc_flags:
    """Flags of page-locked memory, none of which changes anything."""

    PORTABLE = 1
    DEVICEMAP = 2
    WRITECOMBINED = 4


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(
        f"'pycuda.driver.{name}' is not stood in for: there is no CUDA device here; memory, streams and events are"
    )


class DeviceAllocation:
    """A block that is given back with ``free`` or when nobody has it any more."""

    def __init__(self, size_bytes: int) -> None:
        self._block = BLOCKS.allocate(size_bytes)
        self._is_free = False

    def __int__(self) -> int:
        return self._block.address

    __index__ = __int__

    def free(self) -> None:
        """Give it back."""
        if not self._is_free:
            self._is_free = True
            BLOCKS.free(self._block.address)

    def __del__(self) -> None:
        self.free()

    def as_buffer(self, size: int, offset: int = 0) -> memoryview:
        """The bytes themselves."""
        return self._block.array.data[offset : offset + size]


class Stream:
    """A queue of work; all of it is done when a call returns."""

    handle = 0

    def __init__(self, flags: int = 0) -> None:
        self.flags = flags

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def is_done(self) -> bool:
        """Always."""
        return True

    def wait_for_event(self, event: Event) -> None:
        """Nothing to wait for."""


class Event:
    """A point in a stream."""

    def __init__(self, flags: int = 0) -> None:
        self._event = cudaEvent_t()

    def record(self, stream: Stream | None = None) -> Event:
        """Take the time."""
        self._event.record()
        return self

    def synchronize(self) -> Event:
        """Nothing to wait for."""
        return self

    def query(self) -> bool:
        """Everything is done."""
        return True

    def time_since(self, event: Event) -> float:
        """Milliseconds since another event."""
        start, end = event._event.time_ns, self._event.time_ns
        if start is None or end is None:
            raise LogicError("time_since: an event was not recorded")
        return (end - start) / 1e6

    def time_till(self, event: Event) -> float:
        """Milliseconds until another event."""
        return event.time_since(self)


class Context:
    """A context, on which nothing depends."""

    def push(self) -> None:
        """Nothing to do."""

    @staticmethod
    def pop() -> None:
        """Nothing to do."""

    @staticmethod
    def synchronize() -> None:
        """Nothing to wait for."""

    @staticmethod
    def get_current() -> Context:
        """The context."""
        return Context()

    @staticmethod
    def get_device() -> Device:
        """The host."""
        return Device(0)

    def detach(self) -> None:
        """Nothing to give back."""


class Device:
    """The host, which stands for a device."""

    def __init__(self, number: int) -> None:
        if number != 0:
            raise LogicError(f"Device: there is no device {number}; there is only 0, the host")

    @staticmethod
    def count() -> int:
        """One."""
        return 1

    def name(self) -> str:
        """What it is."""
        return "host memory (no CUDA device)"

    def compute_capability(self) -> tuple[int, int]:
        """None: there is no GPU."""
        return 0, 0

    def total_memory(self) -> int:
        """Bytes of the host."""
        return mem_get_info()[1]

    def make_context(self, flags: int = 0) -> Context:
        """A context."""
        return Context()

    def retain_primary_context(self) -> Context:
        """The context."""
        return Context()


def init(flags: int = 0) -> None:
    """Nothing to begin."""


def mem_get_info() -> tuple[int, int]:
    """Free and total bytes of the host."""
    from dovetail_tensorrt.cudart.runtime import cudaMemGetInfo

    return cudaMemGetInfo()[1:]


def get_version() -> tuple[int, int, int]:
    """The version whose names these are."""
    return 13, 0, 0


def get_driver_version() -> int:
    """0: there is no driver."""
    return 0


def mem_alloc(size: int) -> DeviceAllocation:
    """A block of the host's memory."""
    return DeviceAllocation(int(size))


def mem_alloc_like(ary: npt.NDArray[Any]) -> DeviceAllocation:
    """A block for an array."""
    return DeviceAllocation(ary.nbytes)


def to_device(ary: Any) -> DeviceAllocation:
    """A block with the bytes of an array."""
    block = DeviceAllocation(size_of(ary) or 0)
    memcpy_htod(block, ary)
    return block


def from_device(devptr: Any, shape: Any, dtype: Any, order: str = "C") -> npt.NDArray[Any]:
    """An array with the bytes of a block."""
    result = pagelocked_empty(shape, dtype, order)
    memcpy_dtoh(result, devptr)
    return result


def from_device_like(devptr: Any, other_ary: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same, with the shape and type of another array."""
    return from_device(devptr, other_ary.shape, other_ary.dtype)


def pagelocked_empty(shape: Any, dtype: Any, order: str = "C", mem_flags: int = 0) -> npt.NDArray[Any]:
    """An array."""
    return np.empty(shape, dtype, order="F" if order == "F" else "C")


def pagelocked_zeros(shape: Any, dtype: Any, order: str = "C", mem_flags: int = 0) -> npt.NDArray[Any]:
    """An array of zeros."""
    return np.zeros(shape, dtype, order="F" if order == "F" else "C")


def pagelocked_empty_like(array: npt.NDArray[Any], mem_flags: int = 0) -> npt.NDArray[Any]:
    """An array like another."""
    return np.empty_like(array)


def pagelocked_zeros_like(array: npt.NDArray[Any], mem_flags: int = 0) -> npt.NDArray[Any]:
    """An array of zeros like another."""
    return np.zeros_like(array)


def managed_empty(shape: Any, dtype: Any, order: str = "C", mem_flags: int = 0) -> npt.NDArray[Any]:
    """An array."""
    return pagelocked_empty(shape, dtype, order)


def managed_zeros(shape: Any, dtype: Any, order: str = "C", mem_flags: int = 0) -> npt.NDArray[Any]:
    """An array of zeros."""
    return pagelocked_zeros(shape, dtype, order)


def register_host_memory(ary: npt.NDArray[Any], flags: int = 0) -> npt.NDArray[Any]:
    """The array: memory of the host is all there is."""
    return ary


def _copy(target: Any, source: Any, size_bytes: int | None, call: str) -> None:
    count = size_bytes if size_bytes is not None else size_of(target)
    if count is None:
        raise LogicError(f"{call}: neither side says how many bytes there are")
    if not BLOCKS.copy(target, source, count):
        raise LogicError(f"{call} failed: invalid argument: {count} bytes do not fit the memory on one of the sides")


def memcpy_htod(dest: Any, src: Any) -> None:
    """Copy an array to a block."""
    _copy(dest, src, size_of(src), "cuMemcpyHtoD")


def memcpy_htod_async(dest: Any, src: Any, stream: Stream | None = None) -> None:
    """The same."""
    memcpy_htod(dest, src)


def memcpy_dtoh(dest: Any, src: Any) -> None:
    """Copy a block to an array."""
    _copy(dest, src, size_of(dest), "cuMemcpyDtoH")


def memcpy_dtoh_async(dest: Any, src: Any, stream: Stream | None = None) -> None:
    """The same."""
    memcpy_dtoh(dest, src)


def memcpy_dtod(dest: Any, src: Any, size: int) -> None:
    """Copy from block to block."""
    _copy(dest, src, size, "cuMemcpyDtoD")


def memcpy_dtod_async(dest: Any, src: Any, size: int, stream: Stream | None = None) -> None:
    """The same."""
    memcpy_dtod(dest, src, size)


def memset_d8(dest: Any, data: int, count: int) -> None:
    """Set bytes."""
    if not BLOCKS.fill(dest, data, count):
        raise LogicError(f"cuMemsetD8 failed: invalid argument: {count} bytes do not fit the memory")


def memset_d8_async(dest: Any, data: int, count: int, stream: Stream | None = None) -> None:
    """The same."""
    memset_d8(dest, data, count)


def memset_d32(dest: Any, data: int, count: int) -> None:
    """Set numbers of four bytes."""
    memcpy_htod(dest, np.full(count, data, np.uint32))


def start_profiler() -> None:
    """Nobody profiles."""


def stop_profiler() -> None:
    """Nobody profiles."""
