"""The members of ONNX Runtime's structs, in order, as ``table.json`` has them.

A line is ``Name(argument, ...) -> result @version`` for a function and ``name = type @version`` for a number. The
version is the minor one of the ONNX Runtime that brought the member; everything up to the floor says 24.
"""

from __future__ import annotations

import ctypes
import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

__all__ = ["FLOOR", "TABLE_VERSION", "ApiSlot", "ctype_of", "load_table"]

FLOOR: Final = 24
"""The oldest ONNX Runtime that is supported: 1.24."""
TABLE_VERSION: Final = 30
"""The version of ONNX Runtime's interface that the table describes."""

_FUNCTION: Final = re.compile(r"(\w+)\((.*)\) -> (\S+) @(\d+)")
_NUMBER: Final = re.compile(r"(\w+) = (\S+) @(\d+)")
_TYPES: Final[dict[str, Any]] = {
    "ptr": ctypes.c_void_p,
    "status": ctypes.c_void_p,
    "fnptr": ctypes.c_void_p,
    "char*": ctypes.c_void_p,
    "int": ctypes.c_int,
    "bool": ctypes.c_bool,
    "size_t": ctypes.c_size_t,
    "uint32_t": ctypes.c_uint32,
    "int32_t": ctypes.c_int32,
    "uint64_t": ctypes.c_uint64,
    "int64_t": ctypes.c_int64,
    "void": None,
}


@dataclass(frozen=True, kw_only=True)
class ApiSlot:
    """A member of a struct."""

    name: str
    index: int
    since: int
    result: str
    """The type of the result, or of the member itself when it is no function."""
    arguments: tuple[str, ...] | None = None

    @property
    def is_function(self) -> bool:
        """Whether the member is a pointer to a function."""
        return self.arguments is not None


def ctype_of(name: str) -> Any:
    """The ctypes type of a name in the table."""
    return _TYPES[name]


@cache
def load_table() -> dict[str, tuple[ApiSlot, ...]]:
    """The structs by name.

    >>> [slot.name for slot in load_table()["OrtNodeComputeInfo"]]
    ['ort_version_supported', 'CreateState', 'Compute', 'ReleaseState']
    """
    text = files("onnxruntime_ep_dovetail.abi").joinpath("table.json").read_text(encoding="utf-8")
    return {
        struct: tuple(_parse(line, index) for index, line in enumerate(lines))
        for struct, lines in json.loads(text).items()
    }


def _parse(line: str, index: int) -> ApiSlot:
    if match := _FUNCTION.fullmatch(line):
        name, arguments, result, since = match.groups()
        types = tuple(arguments.split(", ")) if arguments else ()
        return ApiSlot(name=name, index=index, since=int(since), result=result, arguments=types)
    match = _NUMBER.fullmatch(line)
    if match is None:
        raise ValueError(f"not a line of the table: {line}")
    name, result, since = match.groups()
    return ApiSlot(name=name, index=index, since=int(since), result=result)
