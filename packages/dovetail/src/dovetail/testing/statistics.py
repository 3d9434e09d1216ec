"""What a host device was told to do, counted."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DeviceStatistics"]


@dataclass
class DeviceStatistics:
    """Counts since the device was made; tests set them to zero with ``reset``."""

    launches: int = 0
    """Kernels put on a stream or run at once, those of replayed graphs not included."""
    copies_to_device: int = 0
    copies_to_host: int = 0
    copies_inside: int = 0
    """Copies from the device's memory to itself."""
    waits: int = 0
    """How often the host waited for a stream, an event or the whole device."""
    captures: int = 0
    replays: int = 0
    updates: int = 0
    """How often a captured graph took over another recording."""
    streams: int = 0

    def reset(self) -> None:
        """Count from zero again."""
        self.__init__()  # type: ignore[misc]  # every field has its default
