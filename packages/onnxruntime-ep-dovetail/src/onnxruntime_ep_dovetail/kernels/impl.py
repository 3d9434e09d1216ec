"""Kernels of the kernel route: what ONNX Runtime makes for a node that it runs itself through the kernel registry.

Behind a kernel is an engine of one node, built when the session makes its kernels: an error then ends the making of the
session and not a run, and weights are read while they are sure to be there. Equal nodes without weights share one.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from onnxruntime_ep_dovetail.abi import KernelCreator, NativeObject, OrtRuntime, write_bool, write_pointer
from onnxruntime_ep_dovetail.abi.objects import make_status
from onnxruntime_ep_dovetail.device.memory import CPU, HOST_ACCESSIBLE
from onnxruntime_ep_dovetail.device.shared import get_device
from onnxruntime_ep_dovetail.graph.values import tensor_array
from onnxruntime_ep_dovetail.kernels.control import create_control_kernel, read_to_host
from onnxruntime_ep_dovetail.kernels.node import KernelNode, read_kernel, read_operator
from onnxruntime_ep_dovetail.kernels.table import CONTROL_FLOW
from onnxruntime_ep_dovetail.library import compute
from onnxruntime_ep_dovetail.session.partition import Partition
from onnxruntime_ep_dovetail.session.places import make_work

if TYPE_CHECKING:
    from onnxruntime_ep_dovetail.kernels.route import KernelRoute

__all__ = ["KernelImpl", "make_creator"]


class KernelImpl(NativeObject):
    """The kernel of one node.

    It keeps no model of the node: the weights in there are views, and ONNX Runtime drops those that were packed.
    """

    struct = "OrtKernelImpl"

    def __init__(self, runtime: OrtRuntime, node: KernelNode, partition: Partition, ep_address: int) -> None:
        super().__init__(runtime)
        self._unread = frozenset(index for index in node.weights if index >= node.num_read)
        """The positions of weights that the engine has and no run looks at."""
        work = make_work(partition, node.places, partition.new_frame)
        self._state = compute.create_state(
            work.new_frame,
            node.num_read,
            node.num_made,
            work.input_types,
            work.output_types,
            runtime.api.address,
            has_stream=work.has_stream,
            ep_address=ep_address,
        )
        ctypes.c_void_p.from_address(self.address + compute.KERNEL_STATE_OFFSET).value = self._state
        self.set_slot("Compute", compute.kernel_compute_address())

    def pre_pack_weight(self, _tensor: int, index: int, _allocator: int, _cache: int, is_packed: int) -> None:
        """Let ONNX Runtime drop a weight that the engine has, unless a run still looks at the place where it was."""
        write_bool(is_packed, index in self._unread)

    def release(self) -> None:
        """Let the kernel and its frames go."""
        super().release()
        compute.release_state(self._state)


# making kernels


def make_creator(runtime: OrtRuntime) -> KernelCreator:
    """The C function with which ONNX Runtime makes kernels; it finds the session through what it is given."""

    def create(_state: int, info: int, target: int) -> int | None:
        try:
            place = ctypes.c_void_p()
            runtime.ep_api.KernelInfo_GetEp(info, ctypes.addressof(place))
            write_pointer(target, _create_kernel(NativeObject.at(place.value or 0), info))
        except BaseException as error:  # noqa: BLE001 - an exception that left a callback would look like success
            return make_status(runtime, error)
        return None

    return KernelCreator(create)


def _create_kernel(ep: KernelRoute, info: int) -> int:
    operator = read_operator(ep.runtime, info)
    if not operator.domain and operator.op in CONTROL_FLOW:
        return create_control_kernel(ep, operator.op, info)
    node = read_kernel(ep.runtime, info, ep.opsets, lambda value: _read_weight(ep, value))
    return KernelImpl(ep.runtime, node, ep.build_kernel(node), ep.address).address


def _read_weight(ep: KernelRoute, value: int) -> Any:
    """A weight as an array of the host; ONNX Runtime may have put it into the memory of the device already."""
    view, api = tensor_array(ep.runtime.api, value), ep.runtime.ep_api
    device = api.Value_GetMemoryDevice(value)
    is_here = api.MemoryDevice_GetDeviceType(device) == CPU or api.MemoryDevice_GetMemoryType(device) == HOST_ACCESSIBLE
    return view if is_here else read_to_host(get_device(ep.backend.name), view)
