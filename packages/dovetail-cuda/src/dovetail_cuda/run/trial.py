"""Ways run for the sake of their time: operands on the device, and every way to use them on one stream.

Where the weights of a partition are more than the device's cache holds, a run of the partition finds none of them in
it. So that a trial does not either, it has several copies of its weights and uses them in turn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from dovetail.allocators import IGpuAllocator
from dovetail.errors import ResourceError
from dovetail.provider.interfaces import Stream
from dovetail_cuda.run.gpu import Gpu
from dovetail_cuda.run.payload import KernelRecord, Launches
from dovetail_cuda.run.steps import Resources, Step, load_functions, prepare_launch
from dovetail_cuda.run.stream_states import StreamStates

__all__ = ["Trial", "TrialBuffer", "TrialLaunches", "TrialTools", "sample"]

_CACHE_BYTES: Final = 150 << 20
"""Copies of weights are as many as make this much, which no cache holds."""
_MOST_COPIES: Final = 24
_MOST_COMPARED: Final = 1 << 19
"""Results of more elements than this are compared in part."""


@dataclass(frozen=True, kw_only=True)
class TrialBuffer:
    """Memory of a trial."""

    dtype: str
    count: int
    make_array: Callable[[], Any] | None
    """Gives its numbers; None for an output."""
    is_weight: bool = False


@dataclass(frozen=True, kw_only=True)
class TrialLaunches:
    """One way as a plan would store it; its buffers are those of the trial in their order, then its temporaries."""

    kernels: Sequence[KernelRecord]
    code: Mapping[str, bytes]
    launches: Sequence[Launches]
    temporaries: Sequence[tuple[int, bool]]
    """The size of each, and whether it is zero before the first run."""
    scratch_bytes: int


@dataclass(frozen=True, kw_only=True)
class TrialTools:
    """What trials run with."""

    gpu: Gpu
    open_memory: Callable[[], IGpuAllocator]
    streams: StreamStates


class Trial:
    """One question over memory of its own.

    Args:
        buffers: Its memory by role.
        tools: What it runs with.
        is_cold: Whether weights are to be found in no cache.
    """

    def __init__(self, buffers: Mapping[str, TrialBuffer], tools: TrialTools, *, is_cold: bool = False) -> None:
        self._buffers, self._tools, self._is_cold = buffers, tools, is_cold
        self._blocks: list[int] = []
        self._libraries: list[int] = []

    @property
    def roles(self) -> list[str]:
        """The roles of its memory, in the order that launches number it."""
        return list(self._buffers)

    def start(self, way: TrialLaunches, stream: Stream) -> Callable[[], None]:
        """Make a way ready, and give what puts it on the stream once."""
        runs = self._bind(way, stream.handle)
        turn = 0

        def run_once() -> None:
            nonlocal turn
            _ = self._tools.gpu.driver  # its context is current from here on
            for step in runs[turn % len(runs)]:
                step(stream.handle)
            turn += 1

        return run_once

    def spoil_outputs(self) -> None:
        """Write what no way gives, so that a result that is not written shows."""
        for address, buffer in self._outputs():
            self._upload(address, np.full(_size(buffer), 0xFF, np.uint8))

    def read_outputs(self) -> list[Any]:
        """What was computed last; of many elements some from everywhere."""
        self._tools.gpu.driver.synchronize()
        return [sample(self._read(address, buffer)) for address, buffer in self._outputs()]

    def close(self) -> None:
        """Give everything back."""
        if not self._libraries and not self._blocks:
            return
        driver = self._tools.gpu.driver
        driver.synchronize()
        for library in self._libraries:
            driver.unload_library(library)
        for block in self._blocks:
            self._tools.open_memory().deallocate(block)
        self._libraries, self._blocks = [], []

    # launches

    def _bind(self, way: TrialLaunches, stream: int) -> list[list[Step]]:
        """The launches of a way, over each copy of the weights."""
        loaded: dict[str, int] = {}
        try:
            functions = load_functions(self._tools.gpu.driver, way.kernels, way.code, loaded)
        finally:
            self._libraries += loaded.values()
        resources = Resources(
            gpu=self._tools.gpu,
            kernels=way.kernels,
            functions=functions,
            streams=self._tools.streams,
            code=way.code,
        )
        ready = [prepare_launch(launch, resources) for launch in way.launches]
        extra = [self._take_temporary(size, is_zeroed) for size, is_zeroed in way.temporaries]
        scratch = self._take(way.scratch_bytes) if way.scratch_bytes else 0
        return [[launch.bind([*copy, *extra], scratch, stream) for launch in ready] for copy in self._copies]

    def _take_temporary(self, size_bytes: int, is_zeroed: bool) -> int:
        address = self._take(size_bytes)
        if is_zeroed:
            self._upload(address, np.zeros(size_bytes, np.uint8))
        return address

    # memory

    @cached_property
    def _copies(self) -> list[list[int]]:
        """The addresses of all buffers, for each copy of the weights; placed when something is first started."""
        first = [self._place(buffer) for buffer in self._buffers.values()]
        total = sum(_size(buffer) for buffer in self._buffers.values() if buffer.is_weight)
        count = min(-(-_CACHE_BYTES // total), _MOST_COPIES) if self._is_cold and total else 1
        places = list(zip(self._buffers.values(), first, strict=True))
        others = [[self._place(b) if b.is_weight else place for b, place in places] for _ in range(count - 1)]
        return [first, *others]

    def _place(self, buffer: TrialBuffer) -> int:
        address = self._take(_size(buffer))
        if buffer.make_array is not None:
            self._upload(address, buffer.make_array())
        return address

    def _outputs(self) -> list[tuple[int, TrialBuffer]]:
        return [(a, b) for a, b in zip(self._copies[0], self._buffers.values(), strict=True) if b.make_array is None]

    def _read(self, address: int, buffer: TrialBuffer) -> Any:
        found = np.empty(buffer.count, np.dtype(buffer.dtype))
        self._tools.gpu.driver.copy(found.ctypes.data, address, found.nbytes, 0)
        self._tools.gpu.driver.synchronize()
        return found

    def _take(self, size_bytes: int) -> int:
        address = self._tools.open_memory().allocate(max(size_bytes, 1), 256, 0)
        if not address:
            raise ResourceError("no memory to time a way", where="provider 'cuda'", got=f"{size_bytes} bytes")
        self._blocks.append(address)
        return address

    def _upload(self, address: int, array: Any) -> None:
        self._tools.gpu.driver.copy(address, array.ctypes.data, array.nbytes, 0)
        self._tools.gpu.driver.synchronize()


def sample(array: Any) -> Any:
    """Up to about a million elements of an array, at distances that no tile is a multiple of."""
    return array[:: _next_prime(array.size // _MOST_COMPARED)] if array.size > _MOST_COMPARED else array


def _next_prime(number: int) -> int:
    number = max(number, 2) + 1
    while any(number % divisor == 0 for divisor in range(2, math.isqrt(number) + 1)):
        number += 1
    return number


def _size(buffer: TrialBuffer) -> int:
    return int(buffer.count * np.dtype(buffer.dtype).itemsize)
