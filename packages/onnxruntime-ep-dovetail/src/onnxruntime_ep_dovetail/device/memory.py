"""The memory of a device as ONNX Runtime sees it: three kinds of it, and the allocators that give it out.

Values and results lie in the default kind. The pinned kind is memory of the host that the device copies best, and
weights that ONNX Runtime keeps go to the read-only kind, which is memory of the device outside of arenas.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable
from contextlib import suppress
from enum import Enum
from typing import Final

from dovetail import DovetailError, UsageError
from onnxruntime_ep_dovetail.abi import LogLevel, NativeObject, OrtRuntime, write_pointer
from onnxruntime_ep_dovetail.device.arenas import Arenas, ArenaSettings
from onnxruntime_ep_dovetail.device.shared import BackendDevice, give_back_number, take_number
from onnxruntime_ep_dovetail.device.streams import find_sync_stream

__all__ = ["CPU", "GPU", "HOST_ACCESSIBLE", "VENDOR_ID", "Allocator", "DeviceMemory", "MemoryKind"]

VENDOR_ID: Final = 0xD07E
"""No vendor of the PCI list has it."""
CPU: Final = 0
GPU: Final = 1
"""The kind of device that memory of every back end is said to be of: ONNX Runtime knows devices by this, by the vendor
and by a number, and takes no other kind everywhere."""
_DEFAULT: Final = 0
HOST_ACCESSIBLE: Final = 5
_DEVICE_ALLOCATOR: Final = 0
_READ_ONLY_ALLOCATOR: Final = 2


class MemoryKind(Enum):
    """What memory is for; the type of memory and of allocator in ONNX Runtime."""

    DEFAULT = (_DEFAULT, _DEVICE_ALLOCATOR)
    PINNED = (HOST_ACCESSIBLE, _DEVICE_ALLOCATOR)
    READ_ONLY = (_DEFAULT, _READ_ONLY_ALLOCATOR)


class Allocator(NativeObject):
    """Gives out memory of one kind."""

    struct = "OrtAllocator"

    def __init__(
        self, runtime: OrtRuntime, device: BackendDevice, info: int, arenas: Arenas, *, is_sole: bool = False
    ) -> None:
        self._device = device
        self._info = info
        self._arenas = arenas
        self._is_sole = is_sole
        """Whether nobody else gives out memory of these arenas, so that they end with it."""
        super().__init__(runtime)

    def release(self) -> None:
        """End it, with its arenas where they are its own."""
        super().release()
        if self._is_sole:
            with suppress(DovetailError):  # a device that fails keeps its memory, and the session ends all the same
                self._device.call("deallocate", self._arenas.close)

    def info(self) -> int:
        """Which memory it gives out."""
        return self._info

    def alloc(self, size: int) -> int | None:
        """Memory that any stream may use."""
        return self._allocate(size, self._device.recording)

    def alloc_on_stream(self, size: int, stream: int | None) -> int | None:
        """Memory that a stream uses first; it may come from work that still waits there."""
        owner = find_sync_stream(self.runtime, stream)
        return self._allocate(size, self._device.recording or (None if owner is None else owner.key))

    def reserve(self, size: int) -> int | None:
        """Memory outside of the arenas."""
        return self._note(size, lambda: self._arenas.reserve(size))

    def _allocate(self, size: int, key: Hashable) -> int | None:
        return self._note(size, lambda: self._arenas.allocate(size, key))

    def _note(self, size: int, allocate: Callable[[], int]) -> int | None:
        """Call; the reason of a failure goes to the log, and is kept for whoever is asked to use the memory."""
        if not size:
            return None
        address, why = 0, f"provider '{self._device.name}' has no memory for {size} bytes"
        try:
            address = self._device.call("allocate", allocate)
        except DovetailError as error:
            why = str(error)
        if not address:
            self._device.shortage = why
            self.runtime.log(LogLevel.ERROR, why)
        return address or None

    def free(self, address: int | None) -> None:
        """Take memory back."""
        if address:
            self._arenas.free(address)

    def get_stats(self, target: int) -> None:
        """How much is given out, and the like."""
        api, pairs = self.runtime.api, ctypes.c_void_p()
        api.CreateKeyValuePairs(ctypes.addressof(pairs))
        for key, value in self._arenas.statistics.items():
            api.AddKeyValuePair(pairs.value, key.encode(), str(value).encode())
        write_pointer(target, pairs.value)

    def shrink(self) -> None:
        """Give back to the back end what nothing uses."""
        self._arenas.shrink()


class DeviceMemory:
    """The kinds of memory of one device in one ONNX Runtime."""

    def __init__(self, runtime: OrtRuntime, device: BackendDevice) -> None:
        self.device = device
        self.number = take_number(device.provider.device.ordinal)
        """The id of the device in ONNX Runtime."""
        self._runtime = runtime
        self.infos = {kind: self._make_info(kind) for kind in MemoryKind}
        """ONNX Runtime's description of each; it keeps the addresses, so they stay."""
        self._shared: dict[bool, Arenas] = {}

    def _make_info(self, kind: MemoryKind) -> int:
        memory_type, allocator_type = kind.value
        name = f"Dovetail {self.device.name} {kind.name.lower().replace('_', ' ')}"
        place = ctypes.c_void_p()
        self._runtime.api.CreateMemoryInfo_V2(
            name.encode(),
            GPU,
            VENDOR_ID,
            self.number,
            memory_type,
            0,  # an alignment would be part of the identity, and callers cannot name one
            allocator_type,
            ctypes.addressof(place),
        )
        return place.value or 0

    def close(self) -> None:
        """Let another device have the number."""
        give_back_number(self.number)

    def add_to(self, ep_device: int) -> None:
        """Say that a device of ONNX Runtime has this memory."""
        for info in self.infos.values():
            self._runtime.ep_api.EpDevice_AddAllocatorInfo(ep_device, info)

    def find_kind(self, info: int) -> MemoryKind | None:
        """Which kind a description stands for; None when it is of another device."""
        for kind, own in self.infos.items():
            differs = ctypes.c_int(1)
            self._runtime.api.CompareMemoryInfo(own, info, ctypes.addressof(differs))
            if own == info or not differs.value:
                return kind
        return None

    def create_allocator(self, info: int, settings: ArenaSettings | None) -> Allocator:
        """An allocator; with settings it has memory of its own, without it shares that of the device."""
        kind = self.find_kind(info)
        if kind is None:
            raise UsageError("no memory of this device", where=f"back end '{self.device.name}'")
        is_pinned = kind is MemoryKind.PINNED
        arenas = self._find_arenas(is_pinned, settings)
        return Allocator(self._runtime, self.device, self.infos[kind], arenas, is_sole=settings is not None)

    def _find_arenas(self, is_pinned: bool, settings: ArenaSettings | None) -> Arenas:
        if settings is not None:
            return self.device.make_arenas(settings, is_pinned=is_pinned)
        if is_pinned not in self._shared:
            self._shared[is_pinned] = self.device.make_arenas(ArenaSettings(), is_pinned=is_pinned)
        return self._shared[is_pinned]

    def memory_device(self) -> int:
        """ONNX Runtime's device of the default memory."""
        found = self._runtime.ep_api.MemoryInfo_GetMemoryDevice(self.infos[MemoryKind.DEFAULT])
        return int(found or 0)
