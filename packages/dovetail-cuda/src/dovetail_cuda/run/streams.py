"""Streams, events and captured graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dovetail.errors import ProviderError
from dovetail.provider.interfaces import CapturedGraph, Event, Stream

if TYPE_CHECKING:
    from dovetail_cuda.run.arenas.library_memory import LibraryMemory
    from dovetail_cuda.run.gpu import Gpu
    from dovetail_cuda.run.stream_states import StreamState, StreamStates

__all__ = ["CudaEvent", "CudaGraph", "CudaStream"]


class CudaEvent(Event):
    """A point in a stream."""

    def __init__(self, gpu: Gpu, stream: int, *, is_timed: bool) -> None:
        self._gpu = gpu
        driver = gpu.driver
        self.handle = driver.create_event(is_timed=is_timed)
        driver.record_event(self.handle, stream)

    def synchronize(self) -> None:
        """Wait until the stream has come here."""
        self._gpu.driver.synchronize_event(self.handle)

    def is_done(self) -> bool:
        """Whether it has."""
        return self._gpu.driver.is_event_done(self.handle)

    def elapsed_us(self, earlier: Event) -> float:
        """Microseconds of the device since an earlier event."""
        if not isinstance(earlier, CudaEvent):
            raise ProviderError("an event of another back end", where="provider 'cuda'", got=type(earlier).__name__)
        return self._gpu.driver.measure_us(earlier.handle, self.handle)

    def __del__(self) -> None:
        try:
            self._gpu.driver.destroy_event(self.handle)
        except (ProviderError, AttributeError):  # the driver is gone at the end of the process
            return


class CudaStream(Stream):
    """A queue of a device, made here or lent by a caller; it has a state of its own among those of all streams.

    Args:
        gpu: The device.
        states: Those of all streams.
        lent: The caller's; None to make one.
        waits_for_default: Whether one that is made keeps order with the default stream.
    """

    def __init__(
        self, gpu: Gpu, states: StreamStates, lent: int | None = None, *, waits_for_default: bool = False
    ) -> None:
        self._gpu = gpu
        self._states = states
        self._is_own = lent is None
        self._handle = gpu.driver.create_stream(waits_for_default=waits_for_default) if lent is None else lent
        self._state: StreamState | None = states.enter(self._handle)

    @property
    def handle(self) -> int:
        """What plugins and libraries take."""
        return self._handle

    def record(self, *, is_timed: bool = False) -> CudaEvent:
        """An event for what was put on the stream so far."""
        return CudaEvent(self._gpu, self._handle, is_timed=is_timed)

    def wait(self, event: Event) -> None:
        """Have later work wait for an event; one of another kind is waited for here."""
        if isinstance(event, CudaEvent):
            self._gpu.driver.wait_event(self._handle, event.handle)
        else:
            event.synchronize()

    def synchronize(self) -> None:
        """Wait until the queue is empty."""
        self._gpu.driver.synchronize_stream(self._handle)

    def close(self) -> None:
        """Give the queue back, where it is our own; its state is found no more."""
        state, self._state = self._state, None
        if self._is_own:
            self._is_own = False
            if state is not None:
                self._states.retire(self._handle, state)
            self._gpu.driver.destroy_stream(self._handle)


Replay = Callable[[Any, Callable[[], None]], None]
"""Launches a graph that has some labels, and may watch it."""


class CudaGraph(CapturedGraph):
    """Work that was captured; it is made ready when it is first replayed.

    Args:
        gpu: The device.
        graph: What was captured.
        labels: What a profile calls its kernels.
        replay: Launches it.
        memory: What libraries took while it was captured: replays use it.
    """

    def __init__(self, gpu: Gpu, graph: int, labels: Any, replay: Replay, memory: LibraryMemory | None = None) -> None:
        self._gpu = gpu
        self._graph = graph
        self._labels = labels
        self._replay = replay
        self._memory = memory
        self._executable: int | None = None

    @property
    def num_nodes(self) -> int:
        """How many things it does."""
        return self._gpu.driver.count_nodes(self._graph)

    def replay(self, stream: Stream) -> None:
        """Put all of it on a stream."""
        driver = self._gpu.driver
        if self._executable is None:
            self._executable = driver.instantiate(self._graph)
        executable, handle = self._executable, stream.handle
        self._replay(self._labels, lambda: driver.launch_graph(executable, handle))

    def update(self, recorded: CapturedGraph) -> bool:
        """Do from now on what another recording does."""
        if self._executable is None or not isinstance(recorded, CudaGraph):
            return False
        is_done = self._gpu.driver.update_graph(self._executable, recorded._graph)
        if is_done:
            self._labels = recorded._labels
            before, self._memory, recorded._memory = self._memory, recorded._memory, None
            if before is not None:  # what was launched before may still use it
                self._gpu.release_later(before.close)
            recorded.close()
        return is_done

    def close(self) -> None:
        """Give it back."""
        driver = self._gpu.driver
        if self._executable is not None:
            driver.destroy_executable(self._executable)
        driver.destroy_graph(self._graph)
        if self._memory is not None:
            self._memory.close()
