"""What the factory and the execution providers of sessions do for back ends with memory of their own."""

from __future__ import annotations

from functools import cached_property

from dovetail import UsageError
from onnxruntime_ep_dovetail.abi import NativeObject, write_bool, write_pointer
from onnxruntime_ep_dovetail.abi.outliving import Outliving
from onnxruntime_ep_dovetail.abi.pairs import read_pairs
from onnxruntime_ep_dovetail.device.arenas import ArenaSettings
from onnxruntime_ep_dovetail.device.backends import Backend
from onnxruntime_ep_dovetail.device.capture import GraphCapture
from onnxruntime_ep_dovetail.device.copies import CopyKernels, DataTransfer
from onnxruntime_ep_dovetail.device.memory import DeviceMemory
from onnxruntime_ep_dovetail.device.shared import BackendDevice, get_device
from onnxruntime_ep_dovetail.device.streams import SyncStream

__all__ = ["DeviceFactory", "DeviceSession"]


class DeviceFactory(Outliving):
    """The part of the factory that has to do with devices."""

    def start_devices(self) -> None:
        """Get ready, before ONNX Runtime asks for anything."""
        self._memories: dict[str, DeviceMemory] = {}
        self._copy_kernels: dict[str, CopyKernels] = {}

    def describe_device(self, backend: Backend) -> dict[str, str]:
        """What the device of a back end says of itself; values lie on it by its ``device_id`` and our vendor's id."""
        device = backend.provider.device
        told = {**device.properties, "backend": backend.name, "device": device.name}
        return told | ({"device_id": str(self.memory_of(backend).number)} if backend.is_device else {})

    def add_memory(self, ep_device: int, backend: Backend) -> None:
        """Say what memory a device of ONNX Runtime has; that of the host is ONNX Runtime's own."""
        if backend.is_device:
            self.memory_of(backend).add_to(ep_device)

    def memory_of(self, backend: Backend) -> DeviceMemory:
        """The memory of a back end."""
        if backend.name not in self._memories:
            self._memories[backend.name] = DeviceMemory(self.runtime, get_device(backend.name))
        return self._memories[backend.name]

    def end(self) -> None:
        """Give back what belongs to this registration."""
        for memory in self._memories.values():
            memory.close()
        super().end()

    def find_memory(self, info: int) -> DeviceMemory:
        """The memory that one of ONNX Runtime's descriptions is of."""
        for memory in self._memories.values():
            if memory.find_kind(info) is not None:
                return memory
        raise UsageError("no memory of a device of Dovetail's", where="CreateAllocator")

    def find_copy_kernels(self, backend: Backend) -> CopyKernels:
        """The kernels that take values to a device and back."""
        if backend.name not in self._copy_kernels:
            device = self.memory_of(backend).device
            self._copy_kernels[backend.name] = CopyKernels(self.runtime, self._transfer, device)
        return self._copy_kernels[backend.name]

    @cached_property
    def _transfer(self) -> DataTransfer:
        return DataTransfer(self.runtime, {memory.number: memory.device for memory in self._memories.values()})

    # what ONNX Runtime calls

    def create_allocator(self, info: int, options: int | None, target: int) -> None:
        """An allocator outside of sessions, or for a session that makes none itself."""
        entries = read_pairs(self.runtime.api, options) if options else {}
        settings = self.find_memory(info).device.read_arena(entries) if entries else None
        write_pointer(target, self.make_allocator(info, settings))

    def make_allocator(self, info: int, settings: ArenaSettings | None) -> int:
        """An allocator for the memory of a description; with settings it has an arena of its own."""
        return self.hold(self.find_memory(info).create_allocator(info, settings))

    def release_allocator(self, allocator: int) -> None:
        """Let an allocator go; a value may have had it longer than the library was registered."""
        self.let_go(allocator)

    def create_data_transfer(self, target: int) -> None:
        """What copies; ONNX Runtime calls this without looking whether it is there."""
        write_pointer(target, self._transfer.address if self._memories else None)

    def is_stream_aware(self) -> bool:
        """Whether partitions run on streams."""
        return bool(self._memories)

    def create_sync_stream_for_device(self, memory_device: int, _options: int | None, target: int) -> None:
        """A stream outside of sessions, or for a session that makes none itself."""
        number = self.runtime.ep_api.MemoryDevice_GetDeviceId(memory_device)
        devices = [memory.device for memory in self._memories.values() if memory.number == number]
        if not devices:
            raise UsageError("no such device", where="CreateSyncStreamForDevice", got=number)
        write_pointer(target, SyncStream(self.runtime, devices[0]).address)


class DeviceSession(GraphCapture, NativeObject):
    """The part of a session's execution provider that has to do with devices."""

    factory: DeviceFactory

    @property
    def device(self) -> BackendDevice | None:
        """The device that the session's values lie on; None for the host."""
        return self.factory.memory_of(self.backend).device if self.backend.has_device_memory else None

    @property
    def copy_kernels(self) -> CopyKernels | None:
        """The kernels that take values to the device and back."""
        return self.factory.find_copy_kernels(self.backend) if self.backend.has_device_memory else None

    def is_concurrent_run_supported(self, target: int) -> None:
        """Several threads may run a session: each has a stream, contexts and memory of its own."""
        write_bool(target, True)

    def sync(self) -> None:
        """Wait for everything the device was given."""
        if self.device is not None:
            self.device.synchronize()

    def get_default_memory_device(self, target: int) -> None:
        """Where the session's values lie."""
        memory = self.factory.memory_of(self.backend) if self.backend.has_device_memory else None
        write_pointer(target, None if memory is None else memory.memory_device())

    def release(self) -> None:
        """Let go of graphs, and of this object."""
        self.close_graphs()
        super().release()

    def create_sync_stream_for_device(self, _memory_device: int, target: int) -> None:
        """A stream for runs of this session, on the queue that the session's options of the back end name."""
        if self.device is None:
            raise UsageError("the session has no device", where="CreateSyncStreamForDevice", got=self.backend.name)
        write_pointer(target, SyncStream(self.runtime, self.device, self.own_provider).address)

    def create_allocator(self, info: int, target: int) -> None:
        """An allocator for this session; with options ``arena.*`` or of the back end it has memory of its own."""
        settings: ArenaSettings | None = None
        if self.device is not None and (self.options.arena or self.own_options is not None):
            settings = self.device.read_arena(self.options.arena, self.own_options)
        write_pointer(target, self.factory.make_allocator(info, settings))
