"""Functions of a caller that give memory of the device, as another framework's allocator has them."""

from __future__ import annotations

import ctypes

from tests.cuda.host.fake_driver import FakeDriver


class CallersMemory:
    """Memory of a device of paper behind C functions.

    Args:
        driver: Of the device.
        limit_bytes: More than this is not given at once.
    """

    def __init__(self, driver: FakeDriver, limit_bytes: int = 1 << 30) -> None:
        self.given: set[int] = set()
        self.num_taken = self.num_emptied = 0
        self._driver = driver
        self._limit_bytes = limit_bytes
        self._functions = (
            ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(self._take),
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._give),
            ctypes.CFUNCTYPE(None)(self._empty),
        )

    @property
    def options(self) -> dict[str, str]:
        """The options that name the functions."""
        names = ("gpu_external_alloc", "gpu_external_free", "gpu_external_empty_cache")
        places = [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in self._functions]
        return {name: hex(place) for name, place in zip(names, places, strict=True)}

    def _take(self, size: int) -> int:
        if size > self._limit_bytes:
            return 0
        address = self._driver.allocate(size)
        self.given.add(address)
        self.num_taken += 1
        return address

    def _give(self, address: int) -> None:
        self.given.remove(address)
        self._driver.free(address)

    def _empty(self) -> None:
        self.num_emptied += 1
