"""A compiled partition while it runs: results that ONNX Runtime owns, or memory of the plan bound once and reused.

Binding an array costs more than running a small graph, so a binding is kept as long as the same arrays come back. Of
a small input that is a new array in every run the contents are copied into a bound buffer instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dovetail.errors import InternalError
from dovetail.provider.devices import Stream
from dovetail.provider.interfaces import LoadedSubgraph

__all__ = ["SessionSubgraph"]

Array = npt.NDArray[Any]
_PLAIN_KINDS: Final = frozenset("fiub")

_UNBOUND: Final = object()
_STAGED_BYTES: Final = 16 * 1024
"""Below this, copying an input is cheaper than binding another array."""


class SessionSubgraph(LoadedSubgraph):
    """One session, which all contexts of an engine share."""

    def __init__(self, session: Any, inputs: Sequence[str], outputs: Sequence[str], keep: Any = None) -> None:
        self._session = session
        self._inputs = tuple(inputs)
        self._outputs = list(outputs)
        self._keep = keep
        """Memory that the session uses and does not own."""

    def bind(self, stream: Stream | None) -> Callable[[Sequence[Any], list[Any]], None]:
        """A function with bindings of its own."""
        return _BoundSession(self._session, self._inputs, self._outputs)

    def close(self) -> None:
        """Let the session go; it ends when the last context does."""
        self._session = None


class _BoundSession:
    """The partition in one context."""

    __slots__ = ("_binding", "_device", "_held", "_inputs", "_outputs", "_run", "_run_bound", "_staged", "_targets")

    def __init__(self, session: Any, inputs: tuple[str, ...], outputs: list[str]) -> None:
        # The methods of the object inside: the public ones check names again in every run.
        self._run = session._sess.run
        self._run_bound = session._sess.run_with_iobinding
        self._binding = session.io_binding()._iobinding
        self._device = _cpu_device()
        self._inputs = inputs
        self._outputs = outputs
        self._held: list[Any] = [None] * len(inputs)
        """The arrays that are bound; while they are held, no other array can be at their address."""
        self._staged: list[Any] = [None] * len(inputs)
        """Buffers for small inputs that are new arrays in every run."""
        self._targets: list[Any] = [_UNBOUND] * len(outputs)

    def __call__(self, inputs: Sequence[Any], outputs: list[Any]) -> None:
        if outputs[0] is None:
            self._run_owned(inputs, outputs)
            return
        for index, target in enumerate(outputs):
            if target is not self._targets[index]:
                if target is None or not _is_bindable(target):
                    self._run_owned(inputs, outputs)
                    return
                self._bind_output(index, target)
        for index, array in enumerate(inputs):
            if array is not self._held[index]:
                if not _is_bindable(array):
                    self._run_owned(inputs, outputs)
                    return
                self._bring_input(index, array)
        self._run_bound(self._binding, None)

    def _run_owned(self, inputs: Sequence[Any], outputs: list[Any]) -> None:
        """Have ONNX Runtime make the results; those that have a place are copied there."""
        results = self._run(self._outputs, dict(zip(self._inputs, inputs)), None)  # noqa: B905 - counted in the plan
        for index, result in enumerate(results):
            target = outputs[index]
            if target is None:
                outputs[index] = result
            else:
                _copy_result(target, result, self._outputs[index])

    def _bind_output(self, index: int, target: Array) -> None:
        self._binding.bind_ortvalue_output(self._outputs[index], _ort_value(target, self._device))
        self._targets[index] = target

    def _bring_input(self, index: int, array: Array) -> None:
        staged = self._staged[index]
        if staged is not None and staged.shape == array.shape and staged.dtype == array.dtype:
            staged[...] = array
            return
        is_first = self._held[index] is None and staged is None
        self._staged[index] = self._held[index] = None
        bound = array
        if not is_first and array.nbytes <= _STAGED_BYTES:
            bound = self._staged[index] = array.copy()
        else:
            self._held[index] = array
        self._binding.bind_ortvalue_input(self._inputs[index], _ort_value(bound, self._device))


def _cpu_device() -> Any:
    from onnxruntime import OrtDevice

    return OrtDevice.make("cpu", 0)._get_c_device()


def _ort_value(array: Array, device: Any) -> Any:
    """A value over the memory of an array, which it keeps alive."""
    from onnxruntime.capi.onnxruntime_pybind11_state import OrtValue

    return OrtValue.ortvalue_from_numpy(array, device)


def _is_bindable(array: Any) -> bool:
    """Whether there is memory to bind: neither an object value, nor a result nobody has a place for, nor no bytes."""
    return array.__class__ is np.ndarray and array.dtype.kind in _PLAIN_KINDS and array.nbytes > 0


def _copy_result(target: Array, result: Array, name: str) -> None:
    if target.shape != result.shape or target.dtype != result.dtype:
        raise InternalError(
            f"ONNX Runtime gave '{name}' another shape or type than the plan says",
            expected=f"{target.dtype.name} {target.shape}",
            got=f"{result.dtype.name} {result.shape}",
        )
    target[...] = result
