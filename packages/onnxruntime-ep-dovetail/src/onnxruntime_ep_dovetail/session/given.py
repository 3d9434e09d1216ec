"""Weights that a session's options give anew (``SessionOptions.add_initializer``).

ONNX Runtime puts them in place after partitions are compiled: its graph shows what the model has, and its interface
tells no value. That there is one for a name can be seen, because it takes no second: so the options are copied and
asked for a place. Weights that are given stay inputs of partitions, and a run brings their values.
"""

from __future__ import annotations

import ctypes
from typing import Final

from dovetail import InternalError
from onnxruntime_ep_dovetail.abi import OrtRuntime

__all__ = ["GivenWeights"]

_FLOAT: Final = 1


class GivenWeights:
    """Tells which weights a session's options give; the options are asked while the session is made."""

    def __init__(self, runtime: OrtRuntime, session_options: int) -> None:
        self._runtime = runtime
        self._answers: dict[str, bool] = {}
        self._element = ctypes.c_float()
        self._probe, self._options = ctypes.c_void_p(), ctypes.c_void_p()
        memory, api = ctypes.c_void_p(), runtime.api
        api.CreateCpuMemoryInfo(0, 0, ctypes.addressof(memory))
        api.CreateTensorWithDataAsOrtValue(
            memory.value, ctypes.addressof(self._element), 4, None, 0, _FLOAT, ctypes.addressof(self._probe)
        )
        api.ReleaseMemoryInfo(memory.value)
        api.CloneSessionOptions(session_options, ctypes.addressof(self._options))

    def has(self, name: str) -> bool:
        """Whether the options have a value for a name."""
        if name not in self._answers:
            self._answers[name] = self._ask(name)
        return self._answers[name]

    def _ask(self, name: str) -> bool:
        if not self._options.value:
            raise InternalError("the options of a session are asked when it is made already", where=f"weight '{name}'")
        api = self._runtime.api
        status = api.raw("AddInitializer")(self._options.value, name.encode(), self._probe.value)
        if status:
            api.ReleaseStatus(status)
        return bool(status)

    def close(self) -> None:
        """Let the copy of the options go."""
        api = self._runtime.api
        api.ReleaseSessionOptions(self._options.value)
        api.ReleaseValue(self._probe.value)
        self._options.value = self._probe.value = None
