"""A compiled partition while it runs: results that ONNX Runtime owns, or memory of the plan bound once and reused.

Binding an array costs more than running a small graph, so a binding is kept as long as the same arrays come back. For
a small input or output that is a new array in every run a buffer is bound instead, and the contents are copied.
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
"""Up to this, copying an array is cheaper than binding another."""


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


class _Port:
    """One input or output of a partition in one context, with the memory that is bound to it."""

    __slots__ = ("_bind", "_device", "_name", "held", "staged")

    def __init__(self, bind: Callable[[str, Any], None], name: str, device: Any) -> None:
        self._bind = bind
        self._name = name
        self._device = device
        self.held: Any = _UNBOUND
        """The array that is bound; while it is held, no other array can be at its address."""
        self.staged: Array | None = None
        """The buffer that is bound in its place when every run brings another array."""

    def take(self, array: Any) -> bool:
        """Bind an array, or a buffer for arrays of its shape and type; False when there is no memory to bind."""
        staged = self.staged
        if staged is not None and array is not None and _is_like(array, staged):
            return True
        if not _is_bindable(array):
            return False
        is_staged = self.held is not _UNBOUND and array.nbytes <= _STAGED_BYTES and _is_like(array, self.held)
        self.held, self.staged = _UNBOUND, None
        bound = np.empty(array.shape, array.dtype) if is_staged else array
        self._bind(self._name, _ort_value(bound, self._device))
        if is_staged:
            self.staged = bound
        else:
            self.held = bound
        return True


class _BoundSession:
    """The partition in one context."""

    __slots__ = ("_binding", "_input_names", "_inputs", "_output_names", "_outputs", "_run", "_run_bound")

    def __init__(self, session: Any, inputs: tuple[str, ...], outputs: list[str]) -> None:
        # The methods of the object inside: the public ones check names again in every run.
        self._run = session._sess.run
        self._run_bound = session._sess.run_with_iobinding
        self._binding = session.io_binding()._iobinding
        device = _cpu_device()
        self._input_names = inputs
        self._output_names = outputs
        self._inputs = [_Port(self._binding.bind_ortvalue_input, name, device) for name in inputs]
        self._outputs = [_Port(self._binding.bind_ortvalue_output, name, device) for name in outputs]

    def __call__(self, inputs: Sequence[Any], outputs: list[Any]) -> None:
        if outputs[0] is None:
            self._run_owned(inputs, outputs)
            return
        for port, target in zip(self._outputs, outputs):  # noqa: B905 - counted in the plan, here and below
            if target is not port.held and not port.take(target):
                self._run_owned(inputs, outputs)
                return
        for port, array in zip(self._inputs, inputs):  # noqa: B905
            if array is not port.held:
                if not port.take(array):
                    self._run_owned(inputs, outputs)
                    return
                if port.staged is not None:
                    port.staged[...] = array
        self._run_bound(self._binding, None)
        for port, target in zip(self._outputs, outputs):  # noqa: B905
            if target is not port.held:
                target[...] = port.staged

    def make(self, inputs: Sequence[Any]) -> list[Any]:
        """Have ONNX Runtime make all results."""
        made: list[Any] = self._run(self._output_names, dict(zip(self._input_names, inputs)), None)  # noqa: B905
        return made

    def _run_owned(self, inputs: Sequence[Any], outputs: list[Any]) -> None:
        """Have ONNX Runtime make the results; those that have a place are copied there."""
        for index, result in enumerate(self.make(inputs)):
            target = outputs[index]
            if target is None:
                outputs[index] = result
            else:
                _copy_result(target, result, self._output_names[index])


def _cpu_device() -> Any:
    from onnxruntime import OrtDevice

    return OrtDevice.make("cpu", 0)._get_c_device()


def _ort_value(array: Array, device: Any) -> Any:
    """A value over the memory of an array, which it keeps alive."""
    from onnxruntime.capi.onnxruntime_pybind11_state import OrtValue

    return OrtValue.ortvalue_from_numpy(array, device)


def _is_like(array: Any, other: Array) -> bool:
    return bool(array.shape == other.shape and array.dtype == other.dtype)


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
