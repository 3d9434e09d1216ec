"""Memory of a device: the driver's own pool, plain blocks, or functions of the caller; and pinned memory of the host.

Each is an ``IGpuAllocator``. Memory that comes back in no stream's order is given to others when nothing runs that
could use it; that is the work of ``Gpu.release_later``.
"""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING, Final

from dovetail.allocators import IGpuAllocator
from dovetail.errors import DovetailError, ResourceError

if TYPE_CHECKING:
    from dovetail_cuda.run.gpu import Gpu

__all__ = ["BlockMemory", "DeviceMemory", "ExternalMemory", "PinnedMemory", "PoolMemory"]

_ALIGNMENT: Final = 256
"""What the driver aligns to, at least."""


class DeviceMemory(IGpuAllocator):
    """Memory that can be asked to give back what it keeps."""

    def reserve(self, size: int) -> int:
        """Memory for what stays, such as weights; one that keeps memory for later takes it by itself."""
        return self.allocate(size, _ALIGNMENT, 0)

    def shrink(self) -> int:
        """Give back what is kept and not used; how many bytes that were, as far as it is known."""
        return 0


class _TrackedMemory(DeviceMemory):
    """Memory with a limit and a list of what is out, so that nothing is given back twice."""

    def __init__(self, gpu: Gpu, *, limit_bytes: int = 0) -> None:
        self._gpu = gpu
        self._limit_bytes = limit_bytes
        self._sizes: dict[int, int] = {}
        self._lock = threading.Lock()

    @property
    def used_bytes(self) -> int:
        """How much is out."""
        with self._lock:
            return sum(self._sizes.values())

    def allocate(self, size: int, alignment: int, flags: int) -> int:
        """Memory, or 0 where there is none."""
        return self._take(size, alignment, 0)

    def deallocate(self, memory: int) -> bool:
        """Take memory back; False when it is not out."""
        return self._return(memory, 0)

    def _take(self, size: int, alignment: int, stream: int) -> int:
        is_too_much = 0 < self._limit_bytes < self.used_bytes + size
        if size < 0 or alignment > _ALIGNMENT or is_too_much:
            return 0
        try:
            address = self._get(max(size, 1), stream)
        except ResourceError:
            return 0
        with self._lock:
            self._sizes[address] = size
        return address

    def _return(self, memory: int, stream: int) -> bool:
        with self._lock:
            is_out = self._sizes.pop(memory, None) is not None
        if is_out:
            try:
                self._put_back(memory, stream)
            except DovetailError:
                return False
        return is_out

    def _get(self, size: int, stream: int) -> int:
        raise NotImplementedError

    def _put_back(self, memory: int, stream: int) -> None:
        raise NotImplementedError


class PoolMemory(_TrackedMemory):
    """The driver's pool: memory comes and goes in the order of a stream.

    Args:
        gpu: The device.
        limit_bytes: How much may be out; 0 for all there is.
        kept_bytes: How much a shrink leaves in the pool.
    """

    def __init__(self, gpu: Gpu, *, limit_bytes: int = 0, kept_bytes: int = 0) -> None:
        super().__init__(gpu, limit_bytes=limit_bytes)
        self._kept_bytes = kept_bytes

    def shrink(self) -> int:
        """Have the driver give back what is in its pool and not used."""
        self._gpu.release_now()
        return self._gpu.driver.trim_pool(self._gpu.ordinal, self._kept_bytes)

    def allocate(self, size: int, alignment: int, flags: int) -> int:
        """Memory that every stream may use at once."""
        self._gpu.release_now()
        address = self._take(size, alignment, 0)
        if address:
            self._gpu.driver.synchronize_stream(0)
        return address

    def allocate_async(self, size: int, alignment: int, flags: int, stream: int) -> int:
        """Memory in the order of a stream."""
        return self._take(size, alignment, stream)

    def deallocate_async(self, memory: int, stream: int) -> bool:
        """Take it back in the order of a stream."""
        return self._return(memory, stream)

    def _get(self, size: int, stream: int) -> int:
        return self._gpu.driver.allocate_async(size, stream)

    def _put_back(self, memory: int, stream: int) -> None:
        if stream:
            self._gpu.driver.free_async(memory, stream)
        else:  # in no stream's order, so that work on any of them may still use it
            self._gpu.release_later(lambda: self._gpu.driver.free(memory))
            self._gpu.release_now()


class BlockMemory(_TrackedMemory):
    """Plain blocks, for an arena to cut; the device waits when one is given back."""

    def _get(self, size: int, stream: int) -> int:
        return self._gpu.driver.allocate(size)

    def _put_back(self, memory: int, stream: int) -> None:
        self._gpu.driver.free(memory)


class PinnedMemory(_TrackedMemory):
    """Memory of the host that the device copies from and to by itself."""

    def _get(self, size: int, stream: int) -> int:
        return self._gpu.driver.allocate_pinned(size)

    def _put_back(self, memory: int, stream: int) -> None:
        self._gpu.driver.free_pinned(memory)


class ExternalMemory(_TrackedMemory):
    """Memory by functions of the caller, such as those of another framework's allocator.

    Args:
        gpu: The device.
        functions: The addresses of ``void* alloc(size_t)``, ``void free(void*)`` and, where it is not 0,
            ``void empty_cache()``.
        limit_bytes: How much may be out; 0 for all there is.
    """

    def __init__(self, gpu: Gpu, functions: tuple[int, int, int], *, limit_bytes: int = 0) -> None:
        super().__init__(gpu, limit_bytes=limit_bytes)
        take, give, empty = functions
        self._take_memory = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(take)
        self._give_memory = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(give)
        self._empty = ctypes.CFUNCTYPE(None)(empty) if empty else None

    def shrink(self) -> int:
        """Have the caller give back what it keeps."""
        self._gpu.release_now()
        if self._empty is not None:
            self._empty()
        return 0

    def _get(self, size: int, stream: int) -> int:
        _ = self._gpu.driver  # its context is current from here on
        address = self._take_memory(size)
        if not address:
            raise ResourceError("the caller's function gave no memory", where="provider 'cuda'", got=f"{size} bytes")
        return int(address)

    def _put_back(self, memory: int, stream: int) -> None:
        self._gpu.release_later(lambda: self._give_memory(memory))
        self._gpu.release_now()
