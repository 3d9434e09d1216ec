"""Host devices inside ONNX Runtime: each test has one of its own, with a registration of the library that lists it."""

from __future__ import annotations

import ctypes
import inspect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from dovetail.testing import HostDevice, host_device
from onnxruntime_ep_dovetail.abi import NativeObject, load_table
from onnxruntime_ep_dovetail.abi.objects import prototype_of
from onnxruntime_ep_dovetail.device.memory import VENDOR_ID
from tests.support import ort_ep

__all__ = ["DeviceInOrt", "call_slot", "devices_in_ort", "needs_memory_info"]

_numbers = itertools.count()
needs_memory_info = pytest.mark.skipif(
    "memory_info" not in inspect.signature(ort.OrtValue.ortvalue_from_shape_and_type).parameters,
    reason="this ONNX Runtime has no way from Python to other memory than a device's default",
)


@dataclass
class DeviceInOrt:
    """A host device, and how ONNX Runtime sees it."""

    provider: HostDevice
    ep_device: Any

    @property
    def name(self) -> str:
        """Of the back end."""
        return self.provider.name

    @property
    def number(self) -> int:
        """The id of the device."""
        return int(self.ep_device.ep_metadata["device_id"])

    def value(self, array: np.ndarray[Any, Any]) -> ort.OrtValue:
        """A copy of an array on the device."""
        return ort.OrtValue.ortvalue_from_numpy(array, "gpu", self.number, VENDOR_ID)

    def empty(self, shape: Sequence[int], dtype: Any = np.float32) -> ort.OrtValue:
        """Memory on the device."""
        return ort.OrtValue.ortvalue_from_shape_and_type(list(shape), dtype, "gpu", self.number, VENDOR_ID)

    def pinned(self, shape: Sequence[int], dtype: Any = np.float32) -> ort.OrtValue:
        """Memory of the host that the device copies best."""
        info = self.ep_device.memory_info(ort.OrtDeviceMemoryType.HOST_ACCESSIBLE)
        return ort.OrtValue.ortvalue_from_shape_and_type(list(shape), dtype, memory_info=info)

    def session(
        self, model: Any, *, fallback: bool = False, entries: Mapping[str, str] | None = None, **options: str
    ) -> ort.InferenceSession:
        """A session on the device; without ``fallback`` every node must be taken."""
        made = ort_ep.session_options(fallback=fallback, entries=entries)
        made.add_provider_for_devices([self.ep_device], options)
        return ort.InferenceSession(model.SerializeToString(), made)

    def break_in(self, *callbacks: str) -> None:
        """Have callbacks of the provider raise from now on."""
        self.provider.options = replace(self.provider.options, raises_in=callbacks)


@contextmanager
def devices_in_ort(count: int = 1, **options: Any) -> Iterator[list[DeviceInOrt]]:
    """Host devices, and a registration of the library that lists them."""
    numbers = [next(_numbers) for _ in range(count)]
    with ExitStack() as stack:
        found = [stack.enter_context(host_device(name=f"device{number}", **options)) for number in numbers]
        name = ort_ep.register(f"dovetail-device{numbers[0]}")
        listed = [device for device in ort.get_ep_devices() if device.ep_name == ort_ep.EP]
        by_name = {device.ep_metadata["backend"]: device for device in listed}
        try:
            yield [DeviceInOrt(provider, by_name[provider.name]) for provider in found]
        finally:
            for provider in found:
                provider.options = replace(provider.options, raises_in=())
            ort.unregister_execution_provider_library(name)


def call_slot(native: NativeObject, name: str, *arguments: Any) -> Any:
    """Call a function of a struct as ONNX Runtime does; a status is raised."""
    slots = load_table()[native.struct]
    slot = next(slot for slot in slots if slot.name == name)
    address = ctypes.c_void_p.from_address(native.address + 8 * slot.index).value
    result = prototype_of(slot)(address)(native.address, *arguments)
    if slot.result == "status":
        native.runtime.api.check(result)
    return result
