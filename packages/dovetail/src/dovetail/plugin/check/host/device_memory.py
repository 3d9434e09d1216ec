"""Memory of a device that a checked plugin runs on, as the checker uses it; whoever has providers implements it.

The checker keeps a twin of every buffer on the host: it is sent before ``enqueue`` and fetched after it, so every rule
looks at plain bytes, wherever the plugin ran.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["CheckedDevice", "DeviceBytes"]

Bytes = npt.NDArray[np.uint8]


class DeviceBytes(Protocol):
    """A block of the device's memory, which goes back when nobody has it any more."""

    @property
    def address(self) -> int:
        """Where it begins."""
        ...

    def write(self, source: Bytes, offset: int) -> None:
        """Copy bytes of the host to a place in it; they are there when this returns."""
        ...

    def read(self, target: Bytes, offset: int) -> None:
        """Copy from a place in it to the host, behind the work of this thread's stream; done when this returns."""
        ...


class CheckedDevice(Protocol):
    """A device that plugins are checked on."""

    @property
    def id(self) -> str:
        """What plans call it, such as ``gpu`` or ``gpu:1``."""
        ...

    def open(self) -> None:
        """Make sure that it is here. Until then nothing of it may be used: the process is copied before."""
        ...

    def allocate(self, size_bytes: int) -> DeviceBytes:
        """New memory."""
        ...

    @property
    def stream(self) -> int:
        """What ``enqueue`` gets as its stream in this thread."""
        ...

    def wait(self) -> None:
        """Wait for the work of this thread's stream."""
        ...
