"""ONNX Runtime's C interface from Python: the layout of its structs, calls into it, and objects that it calls.

Nothing in here knows of Dovetail. The layout comes from ``table.json``; members of these structs are only ever appended
by ONNX Runtime, so one table serves every version from the floor on.
"""

from __future__ import annotations

from onnxruntime_ep_dovetail.abi.calls import Functions, LogLevel, OrtError, OrtRuntime, StatusCode, negotiate
from onnxruntime_ep_dovetail.abi.memory import (
    CString,
    read_pointers,
    read_text,
    read_texts,
    write_bool,
    write_int,
    write_pointer,
    write_size,
)
from onnxruntime_ep_dovetail.abi.objects import KernelCreator, NativeObject, count_live, disarm_all
from onnxruntime_ep_dovetail.abi.table import FLOOR, TABLE_VERSION, ApiSlot, load_table

__all__ = [
    "FLOOR",
    "TABLE_VERSION",
    "ApiSlot",
    "CString",
    "Functions",
    "KernelCreator",
    "LogLevel",
    "NativeObject",
    "OrtError",
    "OrtRuntime",
    "StatusCode",
    "count_live",
    "disarm_all",
    "load_table",
    "negotiate",
    "read_pointers",
    "read_text",
    "read_texts",
    "write_bool",
    "write_int",
    "write_pointer",
    "write_size",
]
