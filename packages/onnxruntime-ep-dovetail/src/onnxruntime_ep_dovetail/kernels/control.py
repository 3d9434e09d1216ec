"""If, Loop and Scan on the kernel route: ONNX Runtime makes their kernels and runs the bodies, we move the memory.

It refuses kernels of ours for operators with bodies, and asks for two things where memory may be a device's: to put the
results of a loop's iterations one after another, and to transpose what a scan goes over.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxruntime_ep_dovetail.abi import NativeObject, OrtRuntime
from onnxruntime_ep_dovetail.device.shared import BackendDevice, get_device
from onnxruntime_ep_dovetail.graph.values import tensor_array

if TYPE_CHECKING:
    from onnxruntime_ep_dovetail.kernels.route import KernelRoute

__all__ = ["create_control_kernel", "read_to_host"]


def create_control_kernel(ep: KernelRoute, op: str, info: int) -> int:
    """The ``OrtKernelImpl`` of a node with bodies."""
    api, place = ep.runtime.ep_api, ctypes.c_void_p()
    device = get_device(ep.backend.name) if ep.backend.has_device_memory else None
    if op == "If":
        api.CreateIfKernel(info, ctypes.addressof(place))
    elif op == "Loop":
        api.CreateLoopKernel(info, LoopHelper(ep.runtime, device).address, ctypes.addressof(place))
    else:
        api.CreateScanKernel(info, ScanHelper(ep.runtime, device).address, ctypes.addressof(place))
    return place.value or 0


class LoopHelper(NativeObject):
    """Puts the results of a loop's iterations together; ONNX Runtime releases it with the kernel."""

    struct = "OrtLoopKernelHelper"

    def __init__(self, runtime: OrtRuntime, device: BackendDevice | None) -> None:
        super().__init__(runtime)
        self._device = device

    def concat_output(self, stream: int | None, values: int, count: int, output: int, size_bytes: int) -> None:
        """Copy values of equal shape one after another."""
        target = output
        for value in (ctypes.c_void_p * count).from_address(values) if count else ():
            array = tensor_array(self.runtime.api, value or 0)
            if target + array.nbytes > output + size_bytes:
                raise ValueError(f"the results of {count} iterations do not fit into {size_bytes} bytes")
            if array.nbytes:
                self._copy(array.ctypes.data, target, array.nbytes, stream or 0)
            target += array.nbytes

    def _copy(self, source: int, target: int, size_bytes: int, stream: int) -> None:
        device = self._device
        if device is None:
            ctypes.memmove(target, source, size_bytes)
        else:
            values = device.bytes_at(source, size_bytes)
            device.copy(values, device.bytes_at(target, size_bytes), device.find_stream(stream))


class ScanHelper(NativeObject):
    """Transposes what a scan goes over; ONNX Runtime releases it with the kernel."""

    struct = "OrtScanKernelHelper"

    def __init__(self, runtime: OrtRuntime, device: BackendDevice | None) -> None:
        super().__init__(runtime)
        self._device = device

    def transpose(self, permutation: int, rank: int, source: int, _stream: int | None, target: int) -> None:
        """Write a tensor with its axes in another order."""
        order = tuple((ctypes.c_size_t * rank).from_address(permutation)) if rank else ()
        array, result = (tensor_array(self.runtime.api, value) for value in (source, target))
        if not array.nbytes:
            return
        device = self._device
        if device is None:
            result[...] = array.transpose(order)
            return
        # Outside of a plan a back end has nothing that transposes, and a scan asks once a run, not once a step.
        device.synchronize()
        turned = np.ascontiguousarray(read_to_host(device, array).transpose(order))
        device.copy_now(turned, device.array_at(result.ctypes.data, result.shape, result.dtype))


def read_to_host(device: BackendDevice, view: Any) -> Any:
    """What lies in the memory of a device, as an array of the host.

    Args:
        device: Whose memory it is.
        view: An array at the place, which the host may not read.
    """
    result = np.empty(view.shape, view.dtype)
    if view.nbytes:
        device.copy_now(device.array_at(view.ctypes.data, view.shape, view.dtype), result)
    return result
