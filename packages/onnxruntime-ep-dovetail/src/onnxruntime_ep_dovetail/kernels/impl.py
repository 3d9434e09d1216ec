"""Kernels of the kernel route: what ONNX Runtime makes for a node that it runs itself through the kernel registry.

Behind a kernel is an engine of one node, built when the session makes its kernels: an error then ends the making of the
session and not a run, and weights are read while they are sure to be there. Equal nodes without weights share one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxruntime_ep_dovetail.abi import NativeObject, Runtime, write_bool, write_pointer
from onnxruntime_ep_dovetail.abi.objects import make_status
from onnxruntime_ep_dovetail.device.memory import CPU, HOST_ACCESSIBLE
from onnxruntime_ep_dovetail.device.shared import get_device
from onnxruntime_ep_dovetail.graph.values import number_of_dtype, tensor_array
from onnxruntime_ep_dovetail.kernels.control import create_control_kernel, read_to_host
from onnxruntime_ep_dovetail.kernels.node import KernelNode, read_kernel, read_operator
from onnxruntime_ep_dovetail.kernels.table import CONTROL_FLOW
from onnxruntime_ep_dovetail.library import load_compute
from onnxruntime_ep_dovetail.library.contract import Frame, Shape
from onnxruntime_ep_dovetail.session.partition import Partition

if TYPE_CHECKING:
    from onnxruntime_ep_dovetail.kernels.route import KernelRoute

__all__ = ["KernelFrame", "KernelImpl", "make_creator"]

_NOTHING: Final[Shape] = (0,)
"""The shape given for an output that nobody reads; ONNX Runtime makes nothing for it."""


class KernelFrame:
    """A frame of the engine that sees the inputs and outputs of the node and passes on those of the model."""

    def __init__(self, frame: Frame, node: KernelNode, *, has_stream: bool) -> None:
        self._frame = frame
        self._node = node
        end = node.num_read + node.num_made
        self._places = (*node.inputs, *(node.num_read + i for i in node.outputs), *((end,) if has_stream else ()))
        self._addresses: tuple[int, ...] = ()
        self._picked: tuple[int, ...] = ()
        self._is_whole = self._places == tuple(range(len(self._places)))

    def resize(self, shapes: tuple[Shape | None, ...], /, *stream: int) -> tuple[Shape | None, ...]:
        """Take new input shapes."""
        made = self._frame.resize(tuple(shapes[index] for index in self._node.inputs), *stream)
        outputs: list[Shape | None] = [_NOTHING] * self._node.num_made
        for index, shape in zip(self._node.outputs, made, strict=True):
            outputs[index] = shape
        self._addresses = ()
        if self._is_whole:
            self.run = self._frame.run  # type: ignore[method-assign] # nothing to leave out
        return tuple(outputs)

    def run(self, addresses: tuple[int, ...], /) -> object:
        """Run once; the engine, too, gets the very same addresses when nothing moved."""
        if addresses is not self._addresses:
            self._picked = tuple([addresses[place] for place in self._places])
            self._addresses = addresses
        return self._frame.run(self._picked)

    def result(self, index: int, /) -> tuple[int | None, Sequence[int]]:
        """Where a result lies whose shape only the run told."""
        return self._frame.result(self._node.outputs.index(index))

    def fill(self, index: int, address: int, /) -> None:
        """Write a result of a device."""
        self._frame.fill(self._node.outputs.index(index), address)  # type: ignore[attr-defined] # it left an address out


class KernelImpl(NativeObject):
    """The kernel of one node."""

    struct = "OrtKernelImpl"

    def __init__(self, runtime: Runtime, node: KernelNode, partition: Partition) -> None:
        super().__init__(runtime)
        self._node = node
        self._compute = load_compute()
        self._state = self._compute.create_state(
            lambda: KernelFrame(partition.new_frame(), node, has_stream=partition.has_stream),
            node.num_read,
            node.num_made,
            _spread(partition.input_dtypes, node.inputs, node.num_read),
            _spread(partition.output_dtypes, node.outputs, node.num_made),
            runtime.api.address,
            has_stream=partition.has_stream,
        )
        ctypes.c_void_p.from_address(self.address + self._compute.KERNEL_STATE_OFFSET).value = self._state
        self.set_slot("Compute", self._compute.kernel_compute_address())

    def pre_pack_weight(self, _tensor: int, index: int, _allocator: int, _cache: int, is_packed: int) -> None:
        """Let ONNX Runtime drop a weight that the engine has, unless a run still looks at the place where it was."""
        write_bool(is_packed, index in self._node.weights and index >= self._node.num_read)

    def release(self) -> None:
        """Let the kernel and its frames go."""
        super().release()
        self._compute.release_state(self._state)


def _spread(dtypes: Sequence[np.dtype[Any]], places: Sequence[int], count: int) -> tuple[int, ...]:
    """Element types by position in the node; 0 where the engine has nothing."""
    types = [0] * count
    for place, dtype in zip(places, dtypes, strict=True):
        types[place] = number_of_dtype(dtype)
    return tuple(types)


# making kernels


def make_creator(runtime: Runtime) -> Any:
    """The C function with which ONNX Runtime makes kernels; it finds the session through what it is given."""

    def create(_state: int, info: int, target: int) -> int | None:
        try:
            place = ctypes.c_void_p()
            runtime.ep_api.KernelInfo_GetEp(info, ctypes.addressof(place))
            write_pointer(target, _create_kernel(NativeObject.at(place.value or 0), info))
        except BaseException as error:  # noqa: BLE001 - an exception that left a callback would look like success
            return make_status(runtime, error)
        return None

    return _CREATE(create)


_CREATE: Final = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


def _create_kernel(ep: KernelRoute, info: int) -> int:
    operator = read_operator(ep.runtime, info)
    if not operator.domain and operator.op in CONTROL_FLOW:
        return create_control_kernel(ep, operator.op, info)
    node = read_kernel(ep.runtime, info, ep.opsets, lambda value: _read_weight(ep, value))
    return KernelImpl(ep.runtime, node, ep.build_kernel(node)).address


def _read_weight(ep: KernelRoute, value: int) -> Any:
    """A weight as an array of the host; ONNX Runtime may have put it into the memory of the device already."""
    view, api = tensor_array(ep.runtime.api, value), ep.runtime.ep_api
    device = api.Value_GetMemoryDevice(value)
    is_here = api.MemoryDevice_GetDeviceType(device) == CPU or api.MemoryDevice_GetMemoryType(device) == HOST_ACCESSIBLE
    return view if is_here else read_to_host(get_device(ep.backend.name), view)
