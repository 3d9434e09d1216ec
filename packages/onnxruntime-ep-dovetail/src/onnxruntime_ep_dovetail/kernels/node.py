"""A node of the kernel route as a model of one node, read from what ONNX Runtime tells a kernel about itself.

A kernel is told no list of its attributes, so those of the operator's schema are asked for one by one. Inputs that are
weights become weights of the model.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from dovetail import UnsupportedOpError
from dovetail.network.onnx_schema import find_schema
from onnxruntime_ep_dovetail.abi import Functions, OrtRuntime, read_text
from onnxruntime_ep_dovetail.graph.read import read_type
from onnxruntime_ep_dovetail.graph.values import read_tensor
from onnxruntime_ep_dovetail.kernels.table import schema_domain
from onnxruntime_ep_dovetail.session.places import Places

__all__ = ["KernelNode", "Operator", "read_kernel", "read_operator"]

ReadWeight = Callable[[int], Any]
"""An ``OrtValue`` that is a weight, as an array of the host."""


@dataclass(frozen=True, kw_only=True)
class Operator:
    """Which operator a kernel is for."""

    op: str
    domain: str
    since: int


@dataclass(frozen=True, kw_only=True)
class KernelNode:
    """The model of a node, and which of the node's inputs and outputs are those of the model.

    Its weights are views of memory that ONNX Runtime may free once the kernel is made, so it must not outlive that.
    """

    operator: Operator
    model: ir.Model
    inputs: tuple[int, ...]
    """Positions of the inputs that a run brings: neither left out nor weights."""
    outputs: tuple[int, ...]
    """Positions of the outputs that somebody reads."""
    weights: frozenset[int]
    """Positions of the inputs that are weights of the model."""

    @property
    def num_read(self) -> int:
        """How many inputs a run looks at: those up to the last that it brings."""
        return self.inputs[-1] + 1 if self.inputs else 0

    @property
    def num_made(self) -> int:
        """How many outputs a run looks at: those up to the last that somebody reads."""
        return self.outputs[-1] + 1 if self.outputs else 0

    @property
    def places(self) -> Places:
        """Where what the engine has is among what a run looks at."""
        return Places(inputs=self.inputs, outputs=self.outputs, num_read=self.num_read, num_made=self.num_made)


def read_operator(runtime: OrtRuntime, info: int) -> Operator:
    """The operator of an ``OrtKernelInfo``."""
    api, since = runtime.api, ctypes.c_int()
    api.KernelInfo_GetOperatorSinceVersion(info, ctypes.addressof(since))
    op, domain = (_read_text(read, info) for read in (api.KernelInfo_GetOperatorType, api.KernelInfo_GetOperatorDomain))
    return Operator(op=op, domain="" if domain == "ai.onnx" else domain, since=since.value)


def read_kernel(runtime: OrtRuntime, info: int, opsets: Mapping[str, int], read_weight: ReadWeight) -> KernelNode:
    """Read the node of a kernel.

    Args:
        runtime: The ONNX Runtime that has the kernel.
        info: The ``OrtKernelInfo``.
        opsets: What the session's model imports, where that is known.
        read_weight: Makes an array of a weight; it is read before this returns.
    """
    return _NodeReader(runtime, info, read_weight).read(opsets)


class _NodeReader:
    def __init__(self, runtime: OrtRuntime, info: int, read_weight: ReadWeight) -> None:
        self._runtime, self._api, self._info = runtime, runtime.api, info
        self._read_weight = read_weight
        self._operator = read_operator(runtime, info)

    def read(self, opsets: Mapping[str, int]) -> KernelNode:
        api, operator = self._api, self._operator
        inputs = self._values("input", api.KernelInfo_GetInputCount, api.KernelInfo_GetInputName)
        outputs = self._values("output", api.KernelInfo_GetOutputCount, api.KernelInfo_GetOutputName)
        weights = {
            index: value for index, value in enumerate(inputs) if value is not None and self._is_weight(index, value)
        }
        node = ir.Node(
            operator.domain,
            operator.op,
            inputs,
            self._attributes(),
            outputs=[ir.Value(name="") if value is None else value for value in outputs],
            name=_read_text(api.KernelInfo_GetNodeName, self._info) or operator.op,
        )
        fed = tuple(i for i, value in enumerate(inputs) if value is not None and i not in weights)
        made = tuple(i for i, value in enumerate(outputs) if value is not None)
        return KernelNode(
            operator=operator,
            model=self._model(node, fed, made, weights, opsets),
            inputs=fed,
            outputs=made,
            weights=frozenset(weights),
        )

    def _model(
        self,
        node: ir.Node,
        fed: tuple[int, ...],
        made: tuple[int, ...],
        weights: Mapping[int, ir.Value],
        opsets: Mapping[str, int],
    ) -> ir.Model:
        since = self._operator.since
        graph = ir.Graph(
            [value for i in fed if (value := node.inputs[i]) is not None],
            [node.outputs[i] for i in made],
            nodes=[node],
            initializers=list(weights.values()),
            opset_imports={"": opsets.get("", since), node.domain: opsets.get(node.domain, since)},
            name="kernel",
        )
        return ir.Model(graph, ir_version=10)

    # inputs and outputs

    def _values(self, word: str, count: Callable[..., Any], name: Callable[..., Any]) -> list[ir.Value | None]:
        """Values by position, None for what the node leaves out; names of the graph would keep equal nodes apart."""
        number = ctypes.c_size_t()
        count(self._info, ctypes.addressof(number))
        return [self._value(word, i) if _read_text(name, self._info, i) else None for i in range(number.value)]

    def _value(self, word: str, index: int) -> ir.Value:
        api, place = self._api, ctypes.c_void_p()
        read = api.KernelInfo_GetInputTypeInfo if word == "input" else api.KernelInfo_GetOutputTypeInfo
        read(self._info, index, ctypes.addressof(place))
        try:
            kind, shape = read_type(self._runtime, place.value or 0)
        finally:
            api.ReleaseTypeInfo(place.value)
        return ir.Value(name=f"{word}{index}", type=kind, shape=shape)

    def _is_weight(self, index: int, value: ir.Value) -> bool:
        """Whether an input is a weight, which its value then holds."""
        is_constant, place = ctypes.c_int(), ctypes.c_void_p()
        api = self._api
        api.KernelInfoGetConstantInput_tensor(
            self._info, index, *(ctypes.addressof(one) for one in (is_constant, place))
        )
        if not is_constant.value or not place.value:
            return False
        array = self._read_weight(place.value)
        value.const_value = ir.Tensor(
            array, dtype=ir.DataType.from_numpy(array.dtype), shape=ir.Shape(array.shape), name=value.name
        )
        value.shape = ir.Shape(array.shape)
        return True

    # attributes

    def _attributes(self) -> list[ir.Attr]:
        operator = self._operator
        schema: Any = find_schema(operator.op, schema_domain(operator.domain), operator.since)
        found = (self._attribute(name, attribute.type.name) for name, attribute in schema.attributes.items())
        return [attribute for attribute in found if attribute is not None]

    def _attribute(self, name: str, kind: str) -> ir.Attr | None:
        """One attribute; None when the node does not carry it."""
        reader = _ATTRIBUTES.get(kind)
        if reader is None:
            raise UnsupportedOpError(
                f"attributes of type {kind} cannot be read", where=f"operator '{self._operator.op}', attribute '{name}'"
            )
        return reader(self._api, self._info, name)


def _read_int(api: Functions, info: int, name: str) -> ir.Attr | None:
    value = ctypes.c_int64()
    if not _try(api, "KernelInfoGetAttribute_int64", info, name.encode(), ctypes.addressof(value)):
        return None
    return ir.AttrInt64(name, value.value)


def _read_float(api: Functions, info: int, name: str) -> ir.Attr | None:
    value = ctypes.c_float()
    if not _try(api, "KernelInfoGetAttribute_float", info, name.encode(), ctypes.addressof(value)):
        return None
    return ir.AttrFloat32(name, value.value)


def _read_string(api: Functions, info: int, name: str) -> ir.Attr | None:
    size = ctypes.c_size_t()
    function, place = "KernelInfoGetAttribute_string", ctypes.addressof(size)
    if not _try(api, function, info, name.encode(), None, place):
        return None
    buffer = ctypes.create_string_buffer(size.value)
    getattr(api, function)(info, name.encode(), buffer, place)
    return ir.AttrString(name, buffer.raw[:-1].decode())


def _read_array(function: str, dtype: Any, make: Callable[[str, Any], ir.Attr]) -> Callable[..., ir.Attr | None]:
    def read(api: Functions, info: int, name: str) -> ir.Attr | None:
        size = ctypes.c_size_t()
        if not _try(api, function, info, name.encode(), None, ctypes.addressof(size)):
            return None
        array = np.empty(size.value, dtype)
        if size.value:
            getattr(api, function)(info, name.encode(), array.ctypes.data, ctypes.addressof(size))
        return make(name, array.tolist())

    return read


def _read_strings(api: Functions, info: int, name: str) -> ir.Attr | None:
    """Texts, which ONNX Runtime gives since 1.25; before that no node that has some is taken."""
    if not api.has("KernelInfoGetAttributeArray_string"):
        return None
    allocator, texts, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
    api.GetAllocatorWithDefaultOptions(ctypes.addressof(allocator))
    arguments = (info, name.encode(), allocator.value, ctypes.addressof(texts), ctypes.addressof(size))
    if not _try(api, "KernelInfoGetAttributeArray_string", *arguments):
        return None
    places = list((ctypes.c_void_p * size.value).from_address(texts.value or 0)) if size.value else []
    found = [read_text(place) for place in places]
    for place in (*places, *([texts.value] if texts.value else [])):
        api.AllocatorFree(allocator.value, place)
    return ir.AttrStrings(name, found)


def _read_tensor(api: Functions, info: int, name: str) -> ir.Attr | None:
    allocator, value = ctypes.c_void_p(), ctypes.c_void_p()
    api.GetAllocatorWithDefaultOptions(ctypes.addressof(allocator))
    if not _try(api, "KernelInfoGetAttribute_tensor", info, name.encode(), allocator.value, ctypes.addressof(value)):
        return None
    try:
        return ir.AttrTensor(name, read_tensor(api, value.value or 0))
    finally:
        api.ReleaseValue(value.value)


_ATTRIBUTES: Mapping[str, Callable[[Functions, int, str], ir.Attr | None]] = {
    "INT": _read_int,
    "FLOAT": _read_float,
    "STRING": _read_string,
    "INTS": _read_array("KernelInfoGetAttributeArray_int64", np.int64, ir.AttrInt64s),
    "FLOATS": _read_array("KernelInfoGetAttributeArray_float", np.float32, ir.AttrFloat32s),
    "STRINGS": _read_strings,
    "TENSOR": _read_tensor,
}


def _try(api: Functions, function: str, *arguments: Any) -> bool:
    """Whether a call succeeded; one for an attribute that is not there fails."""
    status = api.raw(function)(*arguments)
    if status:
        api.ReleaseStatus(status)
    return not status


def _read_text(function: Callable[..., Any], *arguments: Any) -> str:
    """A text by the usual pair of calls: its size with the zero at the end, then itself."""
    size = ctypes.c_size_t()
    function(*arguments, None, ctypes.addressof(size))
    buffer = ctypes.create_string_buffer(size.value)
    function(*arguments, buffer, ctypes.addressof(size))
    return buffer.value.decode()
