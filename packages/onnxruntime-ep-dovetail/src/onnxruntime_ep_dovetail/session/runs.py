"""Runs while they are under way: whether somebody wants one to end, and exceptions that no status can carry.

``RunOptions.terminate`` can be set in ONNX Runtime's interface and not be read. Where it stands is found out by setting
it in options of our own; partitions then look there between their steps.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Final

from dovetail import RunCancelledError
from onnxruntime_ep_dovetail.abi import LogLevel, NativeObject, OrtRuntime
from onnxruntime_ep_dovetail.library import compute

__all__ = ["WatchedRuns", "find_terminate_offset", "make_carrier"]

_LOOKED_AT_BYTES: Final = 64
"""How much of a run's options is looked at; they are larger in every version."""


def find_terminate_offset(runtime: OrtRuntime) -> int | None:
    """Where in the options of a run stands that it is to end; None where that cannot be seen."""
    api, place = runtime.api, ctypes.c_void_p()
    api.CreateRunOptions(ctypes.addressof(place))
    try:
        before = _read(place)
        api.RunOptionsSetTerminate(place.value)
        during = _read(place)
        api.RunOptionsUnsetTerminate(place.value)
        after = _read(place)
    finally:
        api.ReleaseRunOptions(place.value)
    changed = [index for index in range(_LOOKED_AT_BYTES) if (before[index], during[index]) == (0, 1)]
    is_sure = len(changed) == 1 and before == after and sum(a != b for a, b in zip(before, during, strict=True)) == 1
    return changed[0] if is_sure else None


def _read(place: ctypes.c_void_p) -> bytes:
    return ctypes.string_at(place.value or 0, _LOOKED_AT_BYTES)


def make_carrier(error: BaseException) -> type[BaseException]:
    """A class that gives an exception when it is called: Python raises, in another frame, what a class makes."""
    return type(type(error).__name__, (type(error),), {"__new__": lambda *_: error})


class WatchedRuns(NativeObject):
    """The part of the execution provider that is told of runs."""

    terminate_offset: int | None

    def start_watching(self, terminate_offset: int | None, *, has_own: bool) -> None:
        """Get ready, once there are slots.

        Args:
            terminate_offset: What ``find_terminate_offset`` found.
            has_own: Whether the execution provider has functions of its own for starts and ends of runs.
        """
        self.terminate_offset = terminate_offset
        compute.set_carrier(make_carrier)
        if not has_own:
            self.set_slot("OnRunStart", compute.run_start_address())
            self.set_slot("OnRunEnd", compute.run_end_address())
        if terminate_offset is None:
            self.runtime.log(
                LogLevel.INFO, "RunOptions.terminate cannot be seen inside of partitions of this ONNX Runtime"
            )

    @property
    def check_run(self) -> Callable[[], None] | None:
        """What a partition calls between its steps."""
        if self.terminate_offset is None:
            return None
        return partial(compute.check_run, self.address, self.terminate_offset, RunCancelledError)
