"""Objects that ONNX Runtime calls: a C struct of functions whose bodies are methods.

A class names its struct and has a method for each function it implements, by the function's name in snake case; other
slots stay empty, which ONNX Runtime takes as "not there". An object lives until ``release``, because ONNX Runtime holds
nothing but its address.
"""

from __future__ import annotations

import ctypes
import logging
import re
from collections import Counter, deque
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

from onnxruntime_ep_dovetail.abi.calls import LogLevel, OrtError, OrtRuntime, StatusCode
from onnxruntime_ep_dovetail.abi.table import ApiSlot, ctype_of, load_table
from onnxruntime_ep_dovetail.library import compute

__all__ = ["KernelCreator", "NativeObject", "count_live", "disarm_all", "forget_frames", "make_status", "prototype_of"]

_TEARDOWN = re.compile(r"Release\w*|Free|Flush|EndProfiling|KernelDestroy")
"""What ONNX Runtime calls when things end, and nobody asked for anything."""
_live: dict[int, NativeObject] = {}
"""Objects by address."""
_retired: deque[Any] = deque(maxlen=32)
"""Structs and callbacks of objects that went last: one may be released by a callback of its own, which then returns."""
_no_op: list[int] = []
"""Once the interpreter is ending, what stands in for callbacks."""
_log = logging.getLogger(__name__)
_CREATE_KERNEL = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
"""Prototype of the function for ``KernelRegistry_AddKernel``: its state, the node, and the place of the kernel."""


class NativeObject:
    """A struct with the methods of this object in it."""

    struct: ClassVar[str]
    """The name of the C struct."""

    def __init__(self, runtime: OrtRuntime) -> None:
        self.runtime = runtime
        slots = load_table()[self.struct]
        self._memory = (ctypes.c_uint64 * (compute.GATE_OFFSET + len(slots)))()
        self._callbacks: list[Any] = []
        self.address = ctypes.addressof(self._memory)
        ctypes.c_uint32.from_address(self.address).value = runtime.struct_version
        for slot in slots:
            method = getattr(type(self), _method_name(slot.name), None) if slot.is_function else None
            if method is not None and slot.since <= runtime.version:
                self.set_slot(slot.name, _guard(runtime, slot, method, self.address))
        _live[self.address] = self
        if _no_op:
            self.disarm(_no_op[0])

    def set_slot(self, name: str, function: Callable[..., Any] | int) -> None:
        """Set a slot to the address of a C function, or to a gate that calls a Python function."""
        slot, place = _slot(self.struct, name), _offset(self.struct, name)
        if not isinstance(function, int):
            callback = prototype_of(slot)(function)
            self._callbacks.append(callback)
            self._memory[compute.GATE_OFFSET + place] = ctypes.cast(callback, ctypes.c_void_p).value or 0
            function = compute.gate_address(place, len(slot.arguments or ()))
        self._memory[place] = function

    def release(self) -> None:
        """Let the object go; ONNX Runtime has said that it will not call it again."""
        _retired.append((self._memory, self._callbacks))
        _live.pop(self.address, None)

    @staticmethod
    def at(address: int) -> Any:
        """The object whose struct is at an address."""
        return _live[address]

    @staticmethod
    def find(address: int) -> Any | None:
        """The same, or None where the struct is not one of ours."""
        return _live.get(address)

    def disarm(self, no_op: int) -> None:
        """Have nothing happen in Python when ONNX Runtime lets go of this object, and keep it for good.

        What users ask for goes on working: an exit function that runs after ours may still run a session.
        """
        for owned in (self, self._memory):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(owned))
        for slot in load_table()[self.struct]:
            place = _offset(self.struct, slot.name)
            if slot.is_function and self._memory[place] and _TEARDOWN.fullmatch(slot.name):
                self._memory[place] = no_op


class KernelCreator:
    """A C function that creates kernels, and the state to register it with: its gate reads the function there."""

    def __init__(self, create: Callable[[int, int, int], int | None]) -> None:
        self._callback = _CREATE_KERNEL(create)
        self._memory = (ctypes.c_uint64 * (compute.GATE_OFFSET + 1))()
        self._memory[compute.GATE_OFFSET] = ctypes.cast(self._callback, ctypes.c_void_p).value or 0
        self.state = ctypes.addressof(self._memory)
        self.address = compute.gate_address(0, 3)


def count_live() -> Counter[str]:
    """How many objects ONNX Runtime holds, by struct."""
    return Counter(native.struct for native in list(_live.values()))


def disarm_all(no_op: int) -> None:
    """Disarm every object there is and will be: ONNX Runtime may let go of them while the interpreter ends."""
    _no_op.append(no_op)
    for native in list(_live.values()):
        native.disarm(no_op)


def make_status(runtime: OrtRuntime, error: BaseException) -> int:
    """A status for an exception, with its whole message."""
    _log.debug("an exception becomes a status", exc_info=error)
    kind = type(error).__name__
    code = StatusCode.NOT_IMPLEMENTED if "Unsupported" in kind else StatusCode.FAIL
    if isinstance(error, MemoryError | RecursionError | KeyboardInterrupt):
        code = StatusCode.RUNTIME_EXCEPTION
    text = f"Dovetail: {_describe(error)}".replace("\0", "\\0")
    forget_frames(error)
    status = runtime.api.CreateStatus(int(code), text.encode(errors="backslashreplace"))
    return int(status or 0)


def _describe(error: BaseException) -> str:
    """The text of an error that was raised on purpose; of any other its class too: its text may say nothing."""
    is_ours = isinstance(error, OrtError) or hasattr(error, "fix")
    return str(error) if is_ours else f"{type(error).__name__}: {error}".removesuffix(": ")


def forget_frames(error: BaseException | None) -> None:
    """Let go of what an exception holds that is kept: its frames have the graph that ONNX Runtime is about to free."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


@cache
def prototype_of(slot: ApiSlot) -> Any:
    """The ctypes prototype of a callback."""
    return ctypes.CFUNCTYPE(ctype_of(slot.result), *(ctype_of(name) for name in slot.arguments or ()))


@cache
def _method_name(slot: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", slot).lower()


def _slot(struct: str, name: str) -> ApiSlot:
    return next(slot for slot in load_table()[struct] if slot.name == name)


@cache
def _offset(struct: str, name: str) -> int:
    """Where a slot is, in words: functions are one each; two numbers of 32 bits share the first one of a kernel."""
    slots = load_table()[struct]
    numbers = sum(1 for slot in slots if not slot.is_function)
    index = _slot(struct, name).index
    return index if numbers == 1 else index - numbers // 2


def _guard(runtime: OrtRuntime, slot: ApiSlot, method: Callable[..., Any], address: int) -> Callable[..., Any]:
    """The method as a C function: an exception that left it would look like success.

    It finds its object by address, so that an object that is released is gone at once and not when cycles are looked
    for.
    """
    objects = _live
    if slot.result == "status":

        def call(_this: int, *arguments: Any) -> int | None:
            try:
                method(objects[address], *arguments)
            except BaseException as error:  # noqa: BLE001 - whatever it is, ONNX Runtime must hear of it
                return make_status(runtime, error)
            return None

        return call

    def answer(_this: int, *arguments: Any) -> Any:
        try:
            return method(objects[address], *arguments)
        except BaseException as error:  # noqa: BLE001 - there is no way to report it but the log
            runtime.log(LogLevel.ERROR, f"{slot.name}: {_describe(error)}")
            return 0

    return answer
