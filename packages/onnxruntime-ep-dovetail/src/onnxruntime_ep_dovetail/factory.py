"""What ONNX Runtime gets when it registers the library: names, devices, and a maker of execution providers."""

from __future__ import annotations

import ctypes
from typing import Final

from onnxruntime_ep_dovetail._version import __version__
from onnxruntime_ep_dovetail.abi import (
    CString,
    LogLevel,
    NativeObject,
    Runtime,
    read_text,
    write_int,
    write_pointer,
    write_size,
)
from onnxruntime_ep_dovetail.backends import Backend, find_backends
from onnxruntime_ep_dovetail.compatibility import Compatibility, judge_info
from onnxruntime_ep_dovetail.domains import CustomOps
from onnxruntime_ep_dovetail.ep import Ep
from onnxruntime_ep_dovetail.kernel_route import KernelTable
from onnxruntime_ep_dovetail.library import load_compute
from onnxruntime_ep_dovetail.library.contract import API_FUNCTIONS
from onnxruntime_ep_dovetail.options import EP_NAME, read_options

__all__ = ["VENDOR_ID", "Factory"]

VENDOR: Final = "Dovetail"
VENDOR_ID: Final = 0xD07E
"""No vendor of the PCI list has it."""
_CPU: Final = 0
_BACKEND_KEY: Final = "backend"


class Factory(NativeObject):
    """Lists devices and makes execution providers."""

    struct = "OrtEpFactory"

    def __init__(self, runtime: Runtime) -> None:
        self._name, self._vendor, self._version = CString(EP_NAME), CString(VENDOR), CString(__version__)
        self._backends: dict[int, Backend] = {}
        """By the address of the device that ONNX Runtime has for it."""
        self._custom_ops = CustomOps.of(runtime)
        self.kernel_table = KernelTable(runtime)
        load_compute().attach(runtime.api.address, {name: runtime.api.slot(name) for name in API_FUNCTIONS})
        super().__init__(runtime)

    def get_name(self) -> int:
        """The name of the execution provider."""
        return self._name.address

    def get_vendor(self) -> int:
        """Who made it."""
        return self._vendor.address

    def get_vendor_id(self) -> int:
        """A number for the vendor."""
        return VENDOR_ID

    def get_version(self) -> int:
        """The version of this package."""
        return self._version.address

    # devices

    def get_supported_devices(self, devices: int, count: int, found: int, room: int, num_found: int) -> None:
        """A device for each back end, on the processor of the machine."""
        api = self.runtime.api
        hardware = [device or 0 for device in (ctypes.c_void_p * count).from_address(devices)]
        processors = [device for device in hardware if api.HardwareDevice_Type(device) == _CPU]
        backends = find_backends() if processors else []
        for index, backend in enumerate(backends[:room]):
            self._add_device(processors[0], backend, found + 8 * index)
        write_size(num_found, min(len(backends), room))

    def _add_device(self, hardware: int, backend: Backend, place: int) -> None:
        api, metadata, options = self.runtime.api, ctypes.c_void_p(), ctypes.c_void_p()
        api.CreateKeyValuePairs(ctypes.addressof(metadata))
        api.CreateKeyValuePairs(ctypes.addressof(options))
        api.AddKeyValuePair(metadata.value, _BACKEND_KEY.encode(), backend.name.encode())
        self.runtime.ep_api.CreateEpDevice(self.address, hardware, metadata.value, options.value, place)
        api.ReleaseKeyValuePairs(metadata.value)
        api.ReleaseKeyValuePairs(options.value)

    # execution providers

    def create_ep(
        self, devices: int, metadata: int, count: int, session_options: int, logger: int, target: int
    ) -> None:
        """An execution provider for a session."""
        options = read_options(self._read_entries(session_options))
        backend = self._choose_backend(metadata, count)
        write_pointer(target, Ep(self, backend, options, logger).address)

    def _choose_backend(self, metadata: int, count: int) -> Backend:
        api = self.runtime.api
        pairs = (ctypes.c_void_p * count).from_address(metadata)
        names = [read_text(api.GetKeyValue(one, _BACKEND_KEY.encode())) for one in pairs]
        return Backend(name=names[-1] if names else "cpu")

    def _read_entries(self, session_options: int) -> dict[str, str]:
        api, pairs = self.runtime.api, ctypes.c_void_p()
        api.GetSessionOptionsConfigEntries(session_options, ctypes.addressof(pairs))
        keys, values, count = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
        api.GetKeyValuePairs(pairs.value, *(ctypes.addressof(place) for place in (keys, values, count)))
        read = [
            [read_text(one) for one in (ctypes.c_void_p * count.value).from_address(place.value or 0)]
            for place in (keys, values)
            if count.value
        ]
        api.ReleaseKeyValuePairs(pairs.value)
        return dict(zip(*read, strict=True)) if read else {}

    def release_ep(self, ep: int) -> None:
        """Let an execution provider go; this comes after an unregistration where a session lived on."""
        NativeObject.at(ep).release()

    def validate_compiled_model_compatibility_info(self, _devices: int, _count: int, info: int, answer: int) -> None:
        """Say how well a compiled model runs here; the reason goes to the log, because ONNX Runtime takes a number."""
        found = judge_info(read_text(info))
        level = LogLevel.INFO if found.value <= Compatibility.OPTIMAL else LogLevel.WARNING
        self.runtime.log(level, f"compiled model: {found.value.name.lower().replace('_', ' ')}: {found.reason}")
        write_int(answer, found.value)

    # memory

    def create_data_transfer(self, target: int) -> None:
        """None for the memory of the host; ONNX Runtime calls this without looking whether it is there."""
        write_pointer(target, None)

    def create_allocator(self, _info: int, _options: int, target: int) -> None:
        """None: the memory of the host is ONNX Runtime's own."""
        write_pointer(target, None)

    def release_allocator(self, _allocator: int) -> None:
        """Nothing was made."""

    def is_stream_aware(self) -> bool:
        """Whether partitions run on streams."""
        return False

    # custom operators

    def get_num_custom_op_domains(self, count: int) -> None:
        """How many domains have operators that plugins run."""
        write_size(count, self._custom_ops.refresh())

    def get_custom_op_domains(self, domains: int, count: int) -> None:
        """The domains."""
        for index, domain in enumerate(self._custom_ops.domains[:count]):
            write_pointer(domains + 8 * index, domain)
