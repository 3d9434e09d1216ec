"""A CUDA driver over memory of the host: streams are lazy, and every launch is unpacked and checked.

Work is done when somebody waits for it, which is the most that a device may do to a careless host. A launch reads its
parameters against the signature of the kernel, and each address must lie in memory that is allocated; then the kernel
runs in Triton's interpreter.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dovetail.errors import ProviderError, ResourceError
from dovetail.host_arrays import array_at
from dovetail_cuda.run.driver import DeviceFacts, Driver, Launch, Parameters
from dovetail_cuda.run.kernel_parameters import NUM_SCRATCH, KernelParameter
from tests.cuda.host.interpreter import FakeCode, read_code, run_kernel

Work = Callable[[], None]
MEMORY_BYTES = 1 << 30


def _do(work: Work) -> None:
    """Do work of a device, in which nothing of the host can happen: what is collected may wait for this very work."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        work()
    finally:
        if was_enabled:
            gc.enable()


@dataclass
class FakeStream:
    number: int = 0
    queue: deque[Work] = field(default_factory=deque)
    recording: list[tuple[str, Work]] | None = None


@dataclass
class FakeEvent:
    stream: FakeStream | None = None
    is_done: bool = True
    time_s: float = 0.0


class FakeDriver(Driver):
    def __init__(
        self, num_devices: int = 1, memory_bytes: int = MEMORY_BYTES, multiprocessors: int = 2, has_pool: bool = True
    ) -> None:
        self.num_devices, self.memory_bytes, self.multiprocessors = num_devices, memory_bytes, multiprocessors
        self.has_pool = has_pool
        self.blocks: dict[int, np.ndarray[Any, Any]] = {}
        self.sizes: dict[int, int] = {}
        self.pinned: set[int] = set()
        self.streams: dict[int, FakeStream] = {0: FakeStream()}
        self.events: dict[int, FakeEvent] = {}
        self.libraries: dict[int, FakeCode] = {}
        self.graphs: dict[int, list[tuple[str, Work]]] = {}
        self.executables: dict[int, list[tuple[str, Work]]] = {}
        self.launched: list[str] = []
        self.num_replays = 0
        self.freed_streams: list[int] = []
        self._numbers = itertools.count(1)
        self._handles = itertools.count(1)
        self._lock = threading.RLock()
        self._current = threading.local()

    # devices

    def count_devices(self) -> int:
        return self.num_devices

    def describe_device(self, ordinal: int) -> DeviceFacts:
        return DeviceFacts(
            ordinal=ordinal,
            name="Paper H200",
            capability=(9, 0),
            multiprocessors=self.multiprocessors,
            memory_bytes=self.memory_bytes,
            has_pool=self.has_pool,
        )

    def open_context(self, ordinal: int) -> int:
        return 1000 + ordinal

    def use_context(self, context: int) -> None:
        self._current.context = context

    def find_context(self) -> int:
        return int(getattr(self._current, "context", 0))

    def _check_context(self) -> None:
        if getattr(self._current, "context", None) is None:
            raise ProviderError("no context is current in this thread", where="CUDA driver")

    def synchronize(self) -> None:
        for stream in list(self.streams):
            self.synchronize_stream(stream)

    # memory

    def allocate(self, size_bytes: int) -> int:
        self._check_context()
        with self._lock:
            if sum(self.sizes.values()) + size_bytes > self.memory_bytes:
                raise ResourceError("no memory", where="CUDA driver")
            block = np.full(size_bytes + 512, 0xCD, np.uint8)  # what nobody wrote is no sensible number
            address = -(-block.ctypes.data // 256) * 256
            self.blocks[address], self.sizes[address] = block, size_bytes
            return address

    def free(self, address: int) -> None:
        with self._lock:
            if address not in self.blocks:
                raise ProviderError("memory is given back that is not out", where="CUDA driver")
            self.sizes.pop(address)
            self.blocks.pop(address)[:] = 0xEE

    def allocate_async(self, size_bytes: int, stream: int) -> int:
        return self.allocate(size_bytes)

    def free_async(self, address: int, stream: int) -> None:
        if address not in self.blocks:
            raise ProviderError("memory is given back that is not out", where="CUDA driver")
        self._submit(stream, "free", lambda: self.free(address))

    def keep_pool(self, ordinal: int, threshold_bytes: int) -> None:
        return

    def trim_pool(self, ordinal: int, kept_bytes: int) -> int:
        return 0

    def measure_free_bytes(self) -> int:
        return self.memory_bytes - sum(self.sizes.values())

    def allocate_pinned(self, size_bytes: int) -> int:
        address = self.allocate(size_bytes)
        self.pinned.add(address)
        return address

    def free_pinned(self, address: int) -> None:
        self.pinned.discard(address)
        self.free(address)

    def find_device_of(self, address: int) -> int | None:
        return 0 if self._find_block(address) is not None else None

    def is_shared(self, address: int) -> bool:
        return any(start <= address < start + max(self.sizes[start], 1) for start in list(self.pinned))

    def _find_block(self, address: int) -> int | None:
        for start, size in list(self.sizes.items()):
            if start <= address < start + max(size, 1) and start not in self.pinned:
                return start
        return None

    def copy(self, target: int, source: int, size_bytes: int, stream: int) -> None:
        def work() -> None:
            ctypes.memmove(target, source, size_bytes)

        self._submit(stream, "copy", work)

    # streams

    def create_stream(self, *, waits_for_default: bool = False) -> int:
        self._check_context()
        handle = self.freed_streams.pop() if self.freed_streams else next(self._handles)
        self.streams[handle] = FakeStream(number=next(self._numbers))
        return handle

    def identify_stream(self, stream: int) -> int:
        self._check_context()
        if stream not in self.streams:
            raise ProviderError("a stream that is none", where="CUDA driver")
        return self.streams[stream].number

    def destroy_stream(self, stream: int) -> None:
        self.synchronize_stream(stream)
        del self.streams[stream]
        self.freed_streams.append(stream)  # the next one has its address, as a driver may have it

    def synchronize_stream(self, stream: int) -> None:
        with self._lock:
            found = self.streams[stream]
            if found.recording is not None:
                raise ProviderError("a stream that is captured cannot be waited for", where="CUDA driver")
            while found.queue:
                _do(found.queue.popleft())

    def _submit(self, stream: int, kind: str, work: Work) -> None:
        self._check_context()
        with self._lock:
            found = self.streams[stream]
            if found.recording is not None:
                found.recording.append((kind, work))
            else:
                found.queue.append(work)

    # events

    def create_event(self, *, is_timed: bool) -> int:
        handle = next(self._handles)
        self.events[handle] = FakeEvent()
        return handle

    def destroy_event(self, event: int) -> None:
        self.events.pop(event, None)

    def record_event(self, event: int, stream: int) -> None:
        found = self.events[event]
        found.stream, found.is_done = self.streams[stream], False

        def reach() -> None:
            found.is_done, found.time_s = True, time.perf_counter()

        self._submit(stream, "event", reach)

    def wait_event(self, stream: int, event: int) -> None:
        found = self.events[event]
        self._submit(stream, "wait", lambda: self._reach(found))

    def _reach(self, event: FakeEvent) -> None:
        with self._lock:
            while not event.is_done and event.stream is not None and event.stream.queue:
                _do(event.stream.queue.popleft())

    def synchronize_event(self, event: int) -> None:
        self._reach(self.events[event])

    def is_event_done(self, event: int) -> bool:
        return self.events[event].is_done

    def measure_us(self, earlier: int, later: int) -> float:
        return (self.events[later].time_s - self.events[earlier].time_s) * 1e6

    # code

    def load_library(self, code: bytes) -> int:
        handle = next(self._handles)
        self.libraries[handle] = read_code(code)
        return handle

    def unload_library(self, library: int) -> None:
        del self.libraries[library]

    def find_function(self, library: int, name: str, shared_bytes: int) -> int:
        if self.libraries[library].request.function != name:
            raise ProviderError(f"there is no kernel {name!a}", where="CUDA driver")
        return library

    def list_parameters(self, function: int) -> list[KernelParameter] | None:
        code = self.libraries[function]
        kinds = [kind for name, kind in code.request.signature.items() if name not in code.request.constants]
        own = [KernelParameter(4 if kind == "i32" else 8, is_address=kind.startswith("*")) for kind in kinds]
        return [*own, *[KernelParameter(8, is_address=True)] * NUM_SCRATCH]

    def find_max_threads(self, function: int) -> int:
        return 32 * self.libraries[function].request.num_warps

    def launch(self, launch: Launch, parameters: Parameters, stream: int) -> None:
        code = self.libraries[launch.function]
        kinds = {name: kind for name, kind in code.request.signature.items() if name not in code.request.constants}
        assert len(parameters.values) == len(kinds) + 2, "the kernel has other parameters"
        places = (ctypes.c_uint64 * (len(kinds) + 2)).from_address(parameters.address)
        values = [ctypes.c_uint64.from_address(place).value for place in places]
        assert values[-2:] == [0, 0], "scratch memory that nobody asked for"
        self.check_wait(code, launch)
        if launch.threads != 32 * code.request.num_warps:  # Triton compiles for this number alone
            raise ProviderError("a kernel could not be launched", where="CUDA driver")
        assert math.prod(launch.grid) > 0

        def work() -> None:
            for (name, kind), value in zip(kinds.items(), values, strict=False):
                is_sound = not kind.startswith("*") or self._find_block(value) is not None
                assert is_sound, f"parameter {name} is not in memory of the device"
            self.launched.append(code.request.function)
            self.run_kernel(code, values[:-2], launch.grid)

        self._submit(stream, "kernel", work)

    def check_wait(self, code: FakeCode, launch: Launch) -> None:
        assert code.request.starts_early or not launch.starts_early, "it does not wait for the kernel in front"

    def run_kernel(self, code: FakeCode, values: Sequence[int], grid: tuple[int, int, int]) -> None:
        run_kernel(code, values, grid)

    # graphs

    def begin_capture(self, stream: int) -> None:
        self.streams[stream].recording = []

    def end_capture(self, stream: int) -> int:
        found, handle = self.streams[stream], next(self._handles)
        assert found.recording is not None
        self.graphs[handle], found.recording = found.recording, None
        return handle

    def find_newest_node(self, stream: int) -> int:
        return len(self.streams[stream].recording or ())

    def list_nodes(self, graph: int) -> list[tuple[int, bool]]:
        return [
            (place, kind in ("kernel", "product", "convolution"))
            for place, (kind, _) in enumerate(self.graphs[graph], 1)
        ]

    def count_nodes(self, graph: int) -> int:
        return len(self.graphs[graph])

    def instantiate(self, graph: int) -> int:
        handle = next(self._handles)
        self.executables[handle] = self.graphs[graph]
        return handle

    def update_graph(self, executable: int, graph: int) -> bool:
        if [kind for kind, _ in self.executables[executable]] != [kind for kind, _ in self.graphs[graph]]:
            return False
        self.executables[executable] = self.graphs[graph]
        return True

    def launch_graph(self, executable: int, stream: int) -> None:
        self.num_replays += 1
        for kind, work in self.executables[executable]:
            self._submit(stream, kind, work)

    def destroy_executable(self, executable: int) -> None:
        del self.executables[executable]

    def destroy_graph(self, graph: int) -> None:
        del self.graphs[graph]

    def view(self, address: int, shape: tuple[int, ...], dtype: Any) -> Any:
        start, size_bytes = self._find_block(address), math.prod(shape) * np.dtype(dtype).itemsize
        assert start is not None, "an operand is not in memory of the device"
        assert address + size_bytes <= start + max(self.sizes[start], 1), "an operand ends behind its memory"
        return array_at(address, shape, dtype)
