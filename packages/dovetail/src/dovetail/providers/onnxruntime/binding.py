"""A compiled partition while it runs: results that ONNX Runtime owns, or memory bound to it for as long as it stays.

Binding an array costs more than running a small graph, so what is bound stays bound while the same memory comes back.
For a small input or output that lies elsewhere in every run a buffer is bound instead, and the contents are copied.
What is bound is a view by address: no array of a caller lives longer because of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dovetail.errors import PlanError
from dovetail.host_arrays import address_of, array_at
from dovetail.provider.interfaces import BindContext, BoundPartition, LoadedPartition
from dovetail.providers.onnxruntime.wire import type_number

__all__ = ["SessionPartition"]

Array = npt.NDArray[Any]
_INTEGERS: Final = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_PLAIN_TYPES: Final = {
    np.dtype(name): type_number(name) for name in ("bool", "float16", "float32", "float64", *_INTEGERS)
}
"""Types whose memory can be bound, with ONNX's numbers for them."""

_STAGED_BYTES: Final = 16 * 1024
"""Up to this, copying an array is cheaper than binding another."""


class SessionPartition(LoadedPartition):
    """One session, which all contexts of an engine share."""

    def __init__(self, session: Any, inputs: Sequence[str], outputs: Sequence[str], keep: Any = None) -> None:
        self._session = session
        self._inputs = tuple(inputs)
        self._outputs = list(outputs)
        self._keep = keep
        """Memory that the session uses and does not own."""

    def bind(self, context: BindContext) -> BoundPartition:
        """The session with bindings of its own."""
        return _BoundSession(self._session, self._inputs, self._outputs)

    def close(self) -> None:
        """Let the session go; it ends when the last context does."""
        self._session = None


class _BoundTensor:
    """One input or output of a partition in one bound run, with the memory that is bound to it."""

    __slots__ = ("_address", "_bind", "_name", "_shape", "staged")

    def __init__(self, bind: Callable[[str, Any], None], name: str) -> None:
        self._bind = bind
        self._name = name
        self._address = 0
        self._shape: tuple[int, ...] | None = None
        self.staged: Array | None = None
        """The buffer that is bound when runs bring memory of other addresses."""

    def take(self, array: Any) -> bool:
        """Have an array bound, or a buffer for its contents; False when there is no memory to bind."""
        if array.__class__ is not np.ndarray:
            return False
        is_known = array.shape == self._shape
        if is_known and (self.staged is not None or address_of(array) == self._address):
            return True
        if array.dtype not in _PLAIN_TYPES or not array.nbytes:
            return False
        is_staged = is_known and array.nbytes <= _STAGED_BYTES
        self.staged = np.empty(array.shape, array.dtype) if is_staged else None
        self._bind_memory(array if self.staged is None else self.staged)
        return True

    def _bind_memory(self, array: Array) -> None:
        self._address, self._shape = address_of(array), array.shape
        self._bind(self._name, _ort_value(array_at(self._address, array.shape, array.dtype)))


class _BoundSession(BoundPartition):
    """The partition in one bound run."""

    __slots__ = (
        "_binding",
        "_input_names",
        "_inputs",
        "_is_ended",
        "_options",
        "_output_names",
        "_outputs",
        "_session",
    )

    def __init__(self, session: Any, inputs: tuple[str, ...], outputs: list[str]) -> None:
        self._session = session
        self._binding = session.io_binding()
        self._input_names = inputs
        self._output_names = outputs
        self._options: Any = None
        """Options of runs where these can be ended; a run with options takes ten times as long to start."""
        self._is_ended = False
        """Whether the options say that runs are to end."""
        self._inputs = [_BoundTensor(self._binding.bind_ortvalue_input, name) for name in inputs]
        self._outputs = [_BoundTensor(self._binding.bind_ortvalue_output, name) for name in outputs]

    def run(self, inputs: Sequence[Any], outputs: list[Any]) -> None:
        """Write to the memory of the outputs where all have some, else have ONNX Runtime make the results."""
        if self._is_ended:
            self._options, self._is_ended = _run_options(), False
        if outputs[0] is None or not (self._take(self._outputs, outputs) and self._take(self._inputs, inputs)):
            self._run_owned(inputs, outputs)
            return
        for port, array in zip(self._inputs, inputs):  # noqa: B905 - counted in the plan, here and below
            if port.staged is not None:
                port.staged[...] = array
        self._session.run_with_iobinding(self._binding, self._options)
        for port, target in zip(self._outputs, outputs):  # noqa: B905
            if port.staged is not None:
                target[...] = port.staged

    def make_interruptible(self) -> Callable[[], None]:
        """What ends the run that is under way."""
        self._options = self._options or _run_options()
        return self._interrupt

    def _interrupt(self) -> None:
        self._is_ended = True
        self._options.terminate = True

    def _take(self, ports: Sequence[_BoundTensor], arrays: Sequence[Any]) -> bool:
        return all([port.take(array) for port, array in zip(ports, arrays)])  # noqa: B905, C419 - a list is faster

    def _run_owned(self, inputs: Sequence[Any], outputs: list[Any]) -> None:
        """Have ONNX Runtime make the results; those that have a place are copied there."""
        made = self._session.run(self._output_names, dict(zip(self._input_names, inputs)), self._options)  # noqa: B905
        for index, result in enumerate(made):
            target = outputs[index]
            if target is None:
                outputs[index] = result
            else:
                _copy_result(target, result, self._output_names[index])


def _run_options() -> Any:
    from onnxruntime import RunOptions

    options = RunOptions()
    # ONNX Runtime's Python part asks for this entry in every run, and where it is missing that takes 40 us. It says
    # that the run is not captured, which none here is.
    options.add_run_config_entry("gpu_graph_id", "-1")
    return options


def _ort_value(array: Array) -> Any:
    """A value over the memory of an array."""
    from onnxruntime import OrtValue

    # The shorter call makes an object for the device every time, which takes as long as all else here.
    return OrtValue.ortvalue_from_numpy_with_onnx_type(array, _PLAIN_TYPES[array.dtype])


def _copy_result(target: Array, result: Array, name: str) -> None:
    if target.shape != result.shape or target.dtype != result.dtype:
        raise PlanError(
            f"ONNX Runtime gave '{name}' another shape or type than the plan says",
            expected=f"{target.dtype.name} {target.shape}",
            got=f"{result.dtype.name} {result.shape}",
        )
    target[...] = result
