"""A table of ONNX Runtime's functions that Compute uses, made with ctypes, so that tests see every call."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxruntime_ep_dovetail.library import compute

# Not ONNX Runtime's own places: Compute must use those that it is told.
SLOTS = {
    "CreateStatus": 0,
    "KernelContext_GetInput": 7,
    "KernelContext_GetOutput": 5,
    "GetTensorMutableData": 11,
    "GetTensorElementTypeAndShapeDataReference": 2,
    "KernelContext_GetGPUComputeStream": 9,
}
FLOAT, INT64, STRING, BOOL, INT4 = 1, 7, 8, 9, 22

_POINTER = ctypes.c_void_p


def _at(address: int, kind: Any, value: int) -> None:
    kind.from_address(address).value = value


@dataclass
class FakeValue:
    """A tensor."""

    array: np.ndarray[Any, Any]
    element_type: int
    shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.shape = self.shape or self.array.shape
        self.dims = (ctypes.c_int64 * max(len(self.shape), 1))(*self.shape)


@dataclass
class FakeContext:
    """The inputs of one run, and the outputs that it made."""

    inputs: list[FakeValue | None]
    output_types: list[int]
    unwanted: set[int] = field(default_factory=set)
    outputs: dict[int, FakeValue] = field(default_factory=dict)
    stream: int = 0
    reuse: dict[tuple[int, tuple[int, ...]], FakeValue] = field(default_factory=dict)
    """Outputs to give again, so that addresses repeat."""


class FakeOrt:
    """The functions, and what they were asked."""

    def __init__(self) -> None:
        self._objects: dict[int, Any] = {}
        self.statuses: dict[int, tuple[int, str]] = {}
        self.fail_in: str | None = None
        functions = {
            "CreateStatus": ctypes.CFUNCTYPE(_POINTER, ctypes.c_int, ctypes.c_char_p)(self._create_status),
            "KernelContext_GetInput": ctypes.CFUNCTYPE(_POINTER, _POINTER, ctypes.c_size_t, _POINTER)(self._get_input),
            "KernelContext_GetOutput": ctypes.CFUNCTYPE(
                _POINTER, _POINTER, ctypes.c_size_t, _POINTER, ctypes.c_size_t, _POINTER
            )(self._get_output),
            "GetTensorMutableData": ctypes.CFUNCTYPE(_POINTER, _POINTER, _POINTER)(self._get_data),
            "GetTensorElementTypeAndShapeDataReference": ctypes.CFUNCTYPE(
                _POINTER, _POINTER, _POINTER, _POINTER, _POINTER
            )(self._get_type_and_shape),
            "KernelContext_GetGPUComputeStream": ctypes.CFUNCTYPE(_POINTER, _POINTER, _POINTER)(self._get_stream),
        }
        self._functions = functions
        self.table = (_POINTER * 16)()
        for name, function in functions.items():
            self.table[SLOTS[name]] = ctypes.cast(function, _POINTER).value

    @property
    def address(self) -> int:
        return ctypes.addressof(self.table)

    def handle(self, thing: Any) -> int:
        self._objects[id(thing)] = thing
        return id(thing)

    def _create_status(self, code: int, text: bytes) -> int:
        status = len(self.statuses) + 1
        self.statuses[status] = (code, text.decode())
        return status

    def _failure(self, name: str) -> int | None:
        return self._create_status(1, f"{name} failed".encode()) if self.fail_in == name else None

    def _get_input(self, context: int, index: int, out: int) -> int | None:
        value = self._objects[context].inputs[index]
        _at(out, ctypes.c_uint64, self.handle(value) if value is not None else 0)
        return self._failure("GetInput")

    def _get_output(self, context: int, index: int, dims: int, rank: int, out: int) -> int | None:
        run: FakeContext = self._objects[context]
        shape = tuple((ctypes.c_int64 * rank).from_address(dims)) if rank else ()
        if index in run.unwanted:
            _at(out, ctypes.c_uint64, 0)
            return None
        value = run.reuse.get((index, shape))
        if value is None:
            kind = run.output_types[index]
            dtype = {FLOAT: np.float32, INT64: np.int64, BOOL: np.bool_}.get(kind, np.uint8)
            value = FakeValue(np.zeros(shape, dtype), kind, shape)
        run.outputs[index] = value
        _at(out, ctypes.c_uint64, self.handle(value))
        return self._failure("GetOutput")

    def _get_data(self, value: int, out: int) -> int | None:
        tensor = self._objects[value]
        if tensor.element_type == STRING:
            return self._create_status(2, b"strings have no address")
        _at(out, ctypes.c_uint64, tensor.array.ctypes.data)
        return self._failure("GetData")

    def _get_stream(self, context: int, out: int) -> int | None:
        _at(out, ctypes.c_uint64, self._objects[context].stream)
        return self._failure("GetStream")

    def _get_type_and_shape(self, value: int, kind: int, dims: int, rank: int) -> int | None:
        tensor = self._objects[value]
        _at(kind, ctypes.c_int32, tensor.element_type)
        _at(dims, ctypes.c_uint64, ctypes.addressof(tensor.dims))
        _at(rank, ctypes.c_uint64, len(tensor.shape))
        return self._failure("GetTypeAndShape")


class Partition:
    """A state of Compute over a fake runtime, called as ONNX Runtime calls it."""

    def __init__(
        self,
        ort: FakeOrt,
        new_frame: Any,
        inputs: Sequence[int],
        outputs: Sequence[int],
        **more: Any,
    ) -> None:
        self.ort = ort
        compute.attach(ort.address, SLOTS)
        self.output_types = list(outputs)
        self.state = compute.create_state(new_frame, len(inputs), len(outputs), tuple(inputs), tuple(outputs), **more)
        signature = ctypes.CFUNCTYPE(_POINTER, _POINTER, _POINTER, _POINTER)
        self._function = signature(compute.compute_address())

    def call(self, context: FakeContext) -> tuple[int, str] | None:
        """Run once; the status as (code, message)."""
        status = self._function(None, self.state, self.ort.handle(context))
        return None if status is None else self.ort.statuses[status]

    def run(self, *inputs: FakeValue | None, **more: Any) -> FakeContext:
        """Run once and expect success."""
        context = FakeContext(list(inputs), self.output_types, **more)
        assert self.call(context) is None
        return context

    def release(self) -> None:
        compute.release_state(self.state)
