"""Calls into ONNX Runtime: its tables of functions as attributes, statuses as exceptions, and its version."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from onnxruntime_ep_dovetail.abi.memory import read_text
from onnxruntime_ep_dovetail.abi.table import FLOOR, TABLE_VERSION, ApiSlot, ctype_of, load_table

__all__ = ["Functions", "LogLevel", "OrtError", "OrtRuntime", "StatusCode", "negotiate"]


class StatusCode(IntEnum):
    """What a status says. Code 11 is missing on purpose: with it Python makes the session anew without us, silently."""

    FAIL = 1
    RUNTIME_EXCEPTION = 6
    NOT_IMPLEMENTED = 9


class LogLevel(IntEnum):
    """How much a message to ONNX Runtime's log matters."""

    INFO = 1
    WARNING = 2
    ERROR = 3


class OrtError(RuntimeError):
    """ONNX Runtime refused a call."""


class Functions:
    """A table of functions; each becomes an attribute when it is first used.

    A function that gives a status raises ``OrtError`` when that is no success. ``raw(name)`` gives the function as it
    is. The interpreter lock is kept during calls: none of those used here waits for anything.
    """

    def __init__(self, address: int, struct: str, version: int, root: Functions | None = None) -> None:
        self.address = address
        self._struct = struct
        self._version = version
        self._root = root or self
        self._slots = {slot.name: slot for slot in load_table()[struct]}

    def has(self, name: str) -> bool:
        """Whether this ONNX Runtime has the function."""
        return self._slots[name].since <= self._version

    def slot(self, name: str) -> int:
        """Where in the table a function stands."""
        return self._slots[name].index

    def raw(self, name: str) -> Callable[..., Any]:
        """The function as it is in C: a status is an address or None."""
        slot = self._slots[name]
        if slot.since > self._version:
            raise OrtError(f"{name} needs ONNX Runtime 1.{slot.since}, this one is 1.{self._version}")
        address = ctypes.c_void_p.from_address(self.address + 8 * slot.index).value
        return _prototype(slot)(address)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in self._slots:
            raise AttributeError(f"{self._struct} has no function {name}")
        function = self.raw(name)
        if self._slots[name].result == "status":
            function = self._checked(function)
        setattr(self, name, function)
        return function

    def _checked(self, function: Callable[..., Any]) -> Callable[..., Any]:
        check = self._root.check

        def call(*arguments: Any) -> None:
            status = function(*arguments)
            if status:
                check(status)

        return call

    def check(self, status: int | None) -> None:
        """Raise what a status says, and let it go."""
        if status:
            text = read_text(self.GetErrorMessage(status))
            self.ReleaseStatus(status)
            raise OrtError(text)


@dataclass(frozen=True, kw_only=True)
class OrtRuntime:
    """The ONNX Runtime that loaded the library."""

    api: Functions
    ep_api: Functions
    version_text: str
    version: int
    """The minor version, which is the version of its interface."""
    logger: int = 0
    """Where messages go that belong to no session."""

    @property
    def struct_version(self) -> int:
        """What structs that we fill say of themselves: not newer than the table, not newer than the runtime."""
        return min(TABLE_VERSION, self.version)

    def log(self, level: LogLevel, text: str, logger: int = 0) -> None:
        """Write to ONNX Runtime's log: that of a session, or its own."""
        target = logger or self.logger
        if target:
            self.api.Logger_LogMessage(target, int(level), f"Dovetail: {text}".encode(), b"dovetail", 0, b"")

    def editor(self) -> Functions:
        """The functions that make nodes."""
        address = self.api.raw("GetModelEditorApi")()
        return Functions(address, "OrtModelEditorApi", self.version, self.api)


def negotiate(base: int, logger: int = 0) -> OrtRuntime:
    """Find out which ONNX Runtime this is, from the ``OrtApiBase`` it gave."""
    get_api = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(ctypes.c_void_p.from_address(base).value or 0)
    get_version = ctypes.PYFUNCTYPE(ctypes.c_void_p)(ctypes.c_void_p.from_address(base + 8).value or 0)
    text = read_text(get_version())
    found = re.match(r"1\.(\d+)\b", text)
    version = int(found[1]) if found else 0
    if version < FLOOR:
        raise OrtError(f"Dovetail needs ONNX Runtime 1.{FLOOR} or newer of 1.x, and this is {text}: update onnxruntime")
    asked = min(version, TABLE_VERSION)
    table = get_api(asked)
    if not table:
        raise OrtError(f"ONNX Runtime {text} does not give the interface of its own version")
    api = Functions(table, "OrtApi", asked)
    ep_api = Functions(api.raw("GetEpApi")(), "OrtEpApi", asked, api)
    return OrtRuntime(api=api, ep_api=ep_api, version_text=text, version=version, logger=logger)


def _prototype(slot: ApiSlot) -> Callable[[int | None], Callable[..., Any]]:
    arguments = (ctypes.c_char_p if name == "char*" else ctype_of(name) for name in slot.arguments or ())
    return ctypes.PYFUNCTYPE(ctype_of(slot.result), *arguments)
