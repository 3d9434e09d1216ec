"""Arrays of the host bound to the inputs and outputs of a session, in the shape of ONNX Runtime's ``IOBinding``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.errors import InputError, UsageError
from dovetail.host_arrays import array_at
from dovetail.runtime.engine import Engine

__all__ = ["SessionBinding"]

Array = npt.NDArray[Any]


class SessionBinding:
    """What a run reads and writes; made by ``InferenceSession.io_binding``."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, Array | None] = {}
        """The memory that each output is written to; None for new memory."""
        self._results: dict[str, Any] = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Read an input from an array."""
        self._engine.input_tensor(name)
        self._inputs[name] = arr_on_cpu

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Read an input from memory, which must live until the run is over."""
        self._inputs[name] = self._view(name, device_type, element_type, shape, buffer_ptr)

    def bind_ortvalue_input(self, name: str, ortvalue: Any) -> None:
        """Read an input from a value of ONNX Runtime."""
        self.bind_cpu_input(name, ortvalue.numpy())

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Write an output to memory, or to a new array."""
        self._engine.output_tensor(name)
        if buffer_ptr is None or shape is None:
            _require_host(name, device_type)
            self._outputs[name] = None
        else:
            self._outputs[name] = self._view(name, device_type, element_type, shape, buffer_ptr)

    def _view(self, name: str, device_type: str, element_type: Any, shape: Sequence[int], address: int) -> Array:
        tensor = self._engine.tensor(name)
        _require_host(name, device_type)
        if element_type is not None and np.dtype(element_type) != np.dtype(tensor.dtype):
            raise InputError("wrong type", where=f"tensor '{name}'", expected=tensor.dtype, got=element_type)
        check = self._engine.address_check
        if check is not None:
            check("", address, f"tensor '{name}'")
        return array_at(address, shape, np.dtype(tensor.dtype))

    def clear_binding_inputs(self) -> None:
        """Bind nothing to inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Bind nothing to outputs."""
        self._outputs.clear()
        self._results.clear()

    def synchronize_inputs(self) -> None:
        """Nothing: arrays of the host are there when they are bound."""

    def synchronize_outputs(self) -> None:
        """Nothing: a run is over when it returns."""

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The results of the last run, in the order that outputs were bound in."""
        return list(self._results.values())

    def run(self) -> None:
        """Run over what is bound.

        Raises:
            UsageError: No output is bound.
        """
        if not self._outputs:
            raise UsageError("no output is bound", where="run_with_iobinding", fix="call bind_output first")
        found = self._engine.run(self._inputs, output_names=list(self._outputs))
        self._results = {name: _deliver(name, found[name], target) for name, target in self._outputs.items()}


def _deliver(name: str, result: Any, target: Array | None) -> Any:
    if target is None:
        return result
    if target.shape != result.shape:
        raise InputError("wrong shape", where=f"output '{name}'", expected=result.shape, got=target.shape)
    target[...] = result
    return target


def _require_host(name: str, device_type: str) -> None:
    if device_type != "cpu":
        raise UsageError(
            "memory of a device cannot be bound here",
            where=f"tensor '{name}'",
            expected="cpu",
            got=device_type,
            fix="use engine.run_on_device, which takes and gives arrays of devices",
        )
