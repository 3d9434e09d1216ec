"""What streams own: each has handles of the libraries that are called on it, opened once, when they are first needed.

A kernel or a library's call is given a raw stream, so the state is found by that. A driver uses the address of a stream
that is gone for a new one; the state of the old one must not be found then. Therefore a stream that is closed is taken
out of the map at once, and of one that a caller lends the driver's own number is compared. Whoever keeps what it found
compares the generation of the map, which grows whenever something is taken out of it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dovetail_cuda.run.cublaslt import ProductLibrary
from dovetail_cuda.run.cudnn import ConvLibrary

if TYPE_CHECKING:
    from dovetail_cuda.run.gpu import Gpu

__all__ = ["OpenLibraries", "StreamState", "StreamStates"]

_DEFAULT: Final = 0
"""The stream of the driver that is always there."""


@dataclass(frozen=True, kw_only=True)
class OpenLibraries:
    """Opens the libraries of a stream; the context is current then."""

    products: Callable[[], ProductLibrary]
    """What multiplies matrices."""
    convolutions: Callable[[], ConvLibrary]
    """What convolves."""


class StreamState:
    """The libraries of one stream.

    Args:
        number: What the driver calls the stream, which it calls no other one.
        libraries: Opens them.
    """

    def __init__(self, number: int, libraries: OpenLibraries) -> None:
        self.number = number
        self._libraries = libraries
        self._products: list[ProductLibrary] = []
        self._convolutions: list[ConvLibrary] = []
        self._lock = threading.Lock()

    @property
    def products(self) -> ProductLibrary:
        """What multiplies matrices on this stream."""
        with self._lock:
            if not self._products:
                self._products.append(self._libraries.products())
            return self._products[0]

    @property
    def convolutions(self) -> ConvLibrary:
        """What convolves on this stream."""
        with self._lock:
            if not self._convolutions:
                self._convolutions.append(self._libraries.convolutions())
            return self._convolutions[0]

    @property
    def opened(self) -> tuple[list[ProductLibrary], list[ConvLibrary]]:
        """Lists of what is opened so far, to be closed when the stream is gone."""
        return self._products, self._convolutions


class StreamStates:
    """The states of a device's streams by their raw handles.

    A state lives as long as somebody has it: a stream that was made or lent. That of the default stream lives always.

    Args:
        gpu: The device.
        libraries: Opens what a stream needs.
    """

    def __init__(self, gpu: Gpu, libraries: OpenLibraries) -> None:
        self._gpu = gpu
        self._libraries = libraries
        self._states: weakref.WeakValueDictionary[int, StreamState] = weakref.WeakValueDictionary()
        self._lock = threading.RLock()
        self._default = StreamState(0, libraries)
        self.generation = 0

    def enter(self, handle: int) -> StreamState:
        """The state of a stream that is made or lent; those of one stream have it together."""
        if handle == _DEFAULT:
            return self._default
        number = self._gpu.driver.identify_stream(handle)
        with self._lock:
            known = self._states.get(handle)
            if known is not None and known.number == number:
                return known
            if known is not None:
                self.retire(handle, known)
            made = StreamState(number, self._libraries)
            self._states[handle] = made
            weakref.finalize(made, self._release, made.opened).atexit = False
            return made

    def find(self, handle: int) -> StreamState:
        """The state of a raw stream; that of the default one where nobody has entered it."""
        return self._states.get(handle, self._default)

    def open_products_soon(self) -> None:
        """Begin to open what multiplies, in a thread, for a library takes as long to load as the weights of a model."""
        if not self._default.opened[0]:
            threading.Thread(target=self._open_products, name="dovetail-cuda-library").start()

    def _open_products(self) -> None:
        with suppress(Exception):  # whoever needs it tries again, and tells why it cannot be opened
            _ = self._gpu.driver  # its context is current in this thread from here on
            _ = self._default.products

    def retire(self, handle: int, state: StreamState) -> None:
        """Take a state out of the map: its stream is gone, and another one may have the handle next."""
        with self._lock:
            if self._states.get(handle) is state:
                del self._states[handle]
            self.generation += 1

    def _release(self, opened: tuple[list[ProductLibrary], list[ConvLibrary]]) -> None:
        """Close libraries when nothing runs that could use them."""
        self.generation += 1
        products, convolutions = opened
        for close in (*(each.close for each in products), *(each.close for each in convolutions)):
            self._gpu.release_later(close)
