"""Nodes of compiled models as ONNX Runtime has them: made through its model editor, and their bytes read."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from onnxruntime_ep_dovetail.abi import CString, OrtRuntime

__all__ = ["Bytes", "make_node", "read_bytes"]

Bytes = npt.NDArray[np.uint8]

_INT: Final = 1
_STRING: Final = 5
"""Kinds of attributes, by ONNX Runtime's numbers."""


def read_bytes(runtime: OrtRuntime, node: int, name: str) -> Bytes:
    """A string attribute of a node, at the start of a page, as a mapped file is; empty when there is none."""
    api, attribute, size = runtime.api, ctypes.c_void_p(), ctypes.c_size_t()
    status = api.raw("Node_GetAttributeByName")(node, name.encode(), ctypes.addressof(attribute))
    if status or not attribute.value:
        api.ReleaseStatus(status)
        return np.empty(0, np.uint8)
    status = api.raw("ReadOpAttr")(attribute.value, _STRING, None, 0, ctypes.addressof(size))
    api.ReleaseStatus(status)  # it says that nothing is too little, and now the size is known
    if not size.value:
        return np.empty(0, np.uint8)
    content = np.frombuffer(mmap.mmap(-1, size.value), np.uint8)
    api.ReadOpAttr(attribute.value, _STRING, content.ctypes.data, size.value, ctypes.addressof(size))
    return content


def make_node(
    runtime: OrtRuntime,
    op: tuple[str, str],
    name: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    attributes: Mapping[str, int | bytes],
) -> int:
    """A node, which belongs to whoever gets it; ``op`` is the operator and its domain."""
    node, made = ctypes.c_void_p(), [_make_attribute(runtime, key, value) for key, value in attributes.items()]
    texts = [[CString(text) for text in group] for group in (inputs, outputs)]
    arrays = [(ctypes.c_void_p * len(group))(*(text.address for text in group)) for group in texts]
    owned = (ctypes.c_void_p * len(made))(*made)
    # It takes the attributes over, whatever its documentation says: to release them here would be twice.
    runtime.editor().CreateNode(
        *(text.encode() for text in (*op, name)),
        *(fact for array in (*arrays, owned) for fact in (ctypes.addressof(array), len(array))),
        ctypes.addressof(node),
    )
    return node.value or 0


def _make_attribute(runtime: OrtRuntime, name: str, value: int | bytes) -> int:
    place = ctypes.c_void_p()
    kind, size = (_INT, 1) if isinstance(value, int) else (_STRING, len(value))
    data = ctypes.c_int64(value) if isinstance(value, int) else ctypes.c_char_p(value)
    # A pointer to bytes is where they lie; a number lies where it is itself.
    address = ctypes.addressof(data) if kind == _INT else ctypes.cast(data, ctypes.c_void_p).value
    runtime.api.CreateOpAttr(name.encode(), address, size, kind, ctypes.addressof(place))
    return place.value or 0
