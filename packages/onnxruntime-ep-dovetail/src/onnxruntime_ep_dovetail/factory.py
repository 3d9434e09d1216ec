"""What ONNX Runtime gets when it registers the library: names, devices, and a maker of execution providers."""

from __future__ import annotations

import ctypes
import os
from functools import partial
from typing import Final

from onnxruntime_ep_dovetail._version import __version__
from onnxruntime_ep_dovetail.abi import (
    CString,
    LogLevel,
    OrtRuntime,
    read_text,
    write_int,
    write_pointer,
    write_size,
)
from onnxruntime_ep_dovetail.abi.outliving import Outliving
from onnxruntime_ep_dovetail.abi.pairs import read_pairs
from onnxruntime_ep_dovetail.compiled.compatibility import Compatibility, judge_info
from onnxruntime_ep_dovetail.device.backends import CPU_BACKEND, Backend, choose_backend, find_backends
from onnxruntime_ep_dovetail.device.memory import VENDOR_ID
from onnxruntime_ep_dovetail.device.side import DeviceFactory
from onnxruntime_ep_dovetail.domains import CustomOps
from onnxruntime_ep_dovetail.kernels.route import KernelTable
from onnxruntime_ep_dovetail.library import compute
from onnxruntime_ep_dovetail.library.contract import API_FUNCTIONS
from onnxruntime_ep_dovetail.session.ep import Ep
from onnxruntime_ep_dovetail.session.given import GivenWeights
from onnxruntime_ep_dovetail.session.options import EP_NAME, EpOptions, read_options
from onnxruntime_ep_dovetail.session.runs import find_terminate_offset

__all__ = ["VENDOR_ID", "EpFactory"]

VENDOR: Final = "Dovetail"
_CPU: Final = 0
_HARDWARE: Final = {"cpu": 0, "gpu": 1, "npu": 2}
"""Kinds of hardware in ONNX Runtime, by those of Dovetail's devices."""
_BACKEND_KEY: Final = "backend"
_CONFIG_FROM_MODEL: Final = "ORT_LOAD_CONFIG_FROM_MODEL"
_OPTIONS_LOST: Final = (
    f"with {_CONFIG_FROM_MODEL}=1 ONNX Runtime passes no options that a session was given, nor those of its devices; "
    "options of an execution provider that is named in providers= arrive"
)


class EpFactory(DeviceFactory, Outliving):
    """Lists devices and makes execution providers."""

    struct = "OrtEpFactory"

    def __init__(self, runtime: OrtRuntime) -> None:
        self._name, self._vendor, self._version = CString(EP_NAME), CString(VENDOR), CString(__version__)
        self._custom_ops = CustomOps.of(runtime)
        self.kernel_table = KernelTable(runtime)
        self.terminate_offset = find_terminate_offset(runtime)
        compute.attach(runtime.api.address, {name: runtime.api.slot(name) for name in API_FUNCTIONS})
        self.start_holding()
        self.start_devices()
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
        """A device for each back end: on hardware of its kind where ONNX Runtime knows some, else on the processor."""
        api = self.runtime.api
        hardware = [device or 0 for device in (ctypes.c_void_p * count).from_address(devices)]
        by_kind = {api.HardwareDevice_Type(device): device for device in reversed(hardware)}
        backends = find_backends(partial(self.runtime.log, LogLevel.WARNING)) if _CPU in by_kind else []
        for index, backend in enumerate(backends[:room]):
            kind = _HARDWARE.get(backend.provider.device.kind, _CPU)
            self._add_device(by_kind.get(kind, by_kind[_CPU]), backend, found + 8 * index)
        write_size(num_found, min(len(backends), room))

    def _add_device(self, hardware: int, backend: Backend, place: int) -> None:
        api, metadata, options = self.runtime.api, ctypes.c_void_p(), ctypes.c_void_p()
        api.CreateKeyValuePairs(ctypes.addressof(metadata))
        api.CreateKeyValuePairs(ctypes.addressof(options))
        for key, value in self.describe_device(backend).items():
            api.AddKeyValuePair(metadata.value, key.encode(), value.encode())
        self.runtime.ep_api.CreateEpDevice(self.address, hardware, metadata.value, options.value, place)
        api.ReleaseKeyValuePairs(metadata.value)
        api.ReleaseKeyValuePairs(options.value)
        self.add_memory(ctypes.c_void_p.from_address(place).value or 0, backend)

    # execution providers

    def create_ep(
        self, devices: int, metadata: int, count: int, session_options: int, logger: int, target: int
    ) -> None:
        """An execution provider for a session.

        A failure is heard when ONNX Runtime asks for nodes: of one that it heard here it would make an exception that
        has its Python part make the session again without us.
        """
        given = GivenWeights(self.runtime, session_options)
        try:
            entries = self._read_entries(session_options)
            if not entries and os.environ.get(_CONFIG_FROM_MODEL) == "1":
                self.runtime.log(LogLevel.WARNING, _OPTIONS_LOST, logger)
            options = read_options(entries)
            backend = choose_backend(self._read_backends(metadata, count), options.backend)
            ep = Ep(self, backend, options, given, logger)
        except BaseException as error:  # noqa: BLE001 - it is kept, and ends the session
            ep = Ep(self, CPU_BACKEND, EpOptions(), given, logger)
            ep.fail_later(error)
        write_pointer(target, self.hold(ep))

    def _read_backends(self, metadata: int, count: int) -> list[str]:
        pairs = (ctypes.c_void_p * count).from_address(metadata)
        return [read_text(self.runtime.api.GetKeyValue(one, _BACKEND_KEY.encode())) for one in pairs]

    def _read_entries(self, session_options: int) -> dict[str, str]:
        api, pairs = self.runtime.api, ctypes.c_void_p()
        api.GetSessionOptionsConfigEntries(session_options, ctypes.addressof(pairs))
        try:
            return read_pairs(api, pairs.value or 0)
        finally:
            api.ReleaseKeyValuePairs(pairs.value)

    def release_ep(self, ep: int) -> None:
        """Let an execution provider go; this comes after an unregistration where a session lived on."""
        self.let_go(ep)

    def validate_compiled_model_compatibility_info(self, _devices: int, _count: int, info: int, answer: int) -> None:
        """Say how well a compiled model runs here; the reason goes to the log, because ONNX Runtime takes a number."""
        found = judge_info(read_text(info))
        level = LogLevel.INFO if found.value <= Compatibility.OPTIMAL else LogLevel.WARNING
        self.runtime.log(level, f"compiled model: {found.value.name.lower().replace('_', ' ')}: {found.reason}")
        write_int(answer, found.value)

    # custom operators

    def get_num_custom_op_domains(self, count: int) -> None:
        """How many domains have operators that plugins run."""
        write_size(count, self._custom_ops.refresh())

    def get_custom_op_domains(self, domains: int, count: int) -> None:
        """The domains."""
        for index, domain in enumerate(self._custom_ops.domains[:count]):
            write_pointer(domains + 8 * index, domain)
