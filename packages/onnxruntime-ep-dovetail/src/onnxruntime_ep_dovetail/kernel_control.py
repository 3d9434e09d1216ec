"""If, Loop and Scan on the kernel route: ONNX Runtime makes their kernels and runs the bodies, we move the memory.

It refuses kernels of ours for operators with bodies, and asks for two things where memory may be a device's: to put the
results of a loop's iterations one after another, and to transpose what a scan goes over.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxruntime_ep_dovetail.abi import NativeObject, Runtime
from onnxruntime_ep_dovetail.backends import Backend
from onnxruntime_ep_dovetail.values import array_at, tensor_array

if TYPE_CHECKING:
    from onnxruntime_ep_dovetail.kernel_route import KernelRoute

__all__ = ["create_control_kernel", "read_to_host"]


def create_control_kernel(ep: KernelRoute, op: str, info: int) -> int:
    """The ``OrtKernelImpl`` of a node with bodies."""
    api, place = ep.runtime.ep_api, ctypes.c_void_p()
    if op == "If":
        api.CreateIfKernel(info, ctypes.addressof(place))
    elif op == "Loop":
        api.CreateLoopKernel(info, LoopHelper(ep.runtime, ep.backend).address, ctypes.addressof(place))
    else:
        api.CreateScanKernel(info, ScanHelper(ep.runtime, ep.backend).address, ctypes.addressof(place))
    return place.value or 0


class LoopHelper(NativeObject):
    """Puts the results of a loop's iterations together; ONNX Runtime releases it with the kernel."""

    struct = "OrtLoopKernelHelper"

    def __init__(self, runtime: Runtime, backend: Backend) -> None:
        super().__init__(runtime)
        self._backend = backend

    def concat_output(self, _stream: int, values: int, count: int, output: int, size_bytes: int) -> None:
        """Copy values of equal shape one after another."""
        target = output
        for value in (ctypes.c_void_p * count).from_address(values) if count else ():
            array = tensor_array(self.runtime.api, value or 0)
            if target + array.nbytes > output + size_bytes:
                raise ValueError(f"the results of {count} iterations do not fit into {size_bytes} bytes")
            _copy(self._backend, array, array_at(target, array.shape, array.dtype))
            target += array.nbytes


class ScanHelper(NativeObject):
    """Transposes what a scan goes over; ONNX Runtime releases it with the kernel."""

    struct = "OrtScanKernelHelper"

    def __init__(self, runtime: Runtime, backend: Backend) -> None:
        super().__init__(runtime)
        self._backend = backend

    def transpose(self, permutation: int, rank: int, source: int, _stream: int, target: int) -> None:
        """Write a tensor with its axes in another order."""
        order = tuple((ctypes.c_size_t * rank).from_address(permutation)) if rank else ()
        array = tensor_array(self.runtime.api, source)
        result = tensor_array(self.runtime.api, target)
        if not self._backend.is_device:
            result[...] = array.transpose(order)
            return
        # The provider contract has no transpose outside of a plan; a scan asks for it once a run, not once a step.
        on_host = np.ascontiguousarray(read_to_host(self._backend, array).transpose(order))
        _copy_between(self._backend, on_host, _on_device(self._backend, result))


def read_to_host(backend: Backend, array: Any) -> Any:
    """What lies in the memory of a device, as an array of the host.

    Args:
        backend: Whose memory it is.
        array: A view that nobody has read: the host may not.
    """
    result = np.empty(array.shape, array.dtype)
    if array.nbytes:
        _copy_between(backend, _on_device(backend, array), result)
    return result


def _copy(backend: Backend, source: Any, target: Any) -> None:
    if not source.nbytes:
        return
    if backend.is_device:
        _copy_between(backend, _on_device(backend, source), _on_device(backend, target))
    else:
        target[...] = source


def _copy_between(backend: Backend, source: Any, target: Any) -> None:
    """Copy in the order of everything the device was given: which stream made the source is not known here."""
    backend.provider.synchronize()
    backend.provider.copy(source, target, None)
    backend.provider.synchronize()


def _on_device(backend: Backend, view: Any) -> Any:
    return backend.provider.array_at(view.ctypes.data, view.shape, view.dtype)
