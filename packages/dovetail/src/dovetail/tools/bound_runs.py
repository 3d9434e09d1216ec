"""Runs over memory that is bound once, on devices too: what an engine takes without what callers add."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dovetail.element_types import BY_NAME
from dovetail.runtime.context import ExecutionContext
from dovetail.runtime.devices.tensors import DeviceTensor

__all__ = ["bind_run"]


def bind_run(context: ExecutionContext, named: Mapping[str, Any]) -> Callable[[], object] | None:
    """A run over memory that is bound once; None when something has no address or no size by then."""
    engine = context.engine
    tensors = (*engine.manifest.inputs, *engine.manifest.outputs)
    if any(t.type or t.format != "LINEAR" or t.alias or t.dims is None or _is_packed(t.dtype) for t in tensors):
        return None
    arrays = {name: engine.place_array(name, _lay_out(array)) for name, array in named.items()}
    for name, array in arrays.items():
        context.set_input_shape(name, array.shape)
        context.set_tensor_address(name, _address_of(array))
    if context.infer_shapes():
        return None
    for tensor in engine.manifest.outputs:
        shape = tuple(context.get_tensor_shape(tensor.name))
        if any(size < 0 for size in shape):
            return None
        arrays[tensor.name] = engine.place_array(tensor.name, np.empty(shape, np.dtype(tensor.dtype)))
        context.set_tensor_address(tensor.name, _address_of(arrays[tensor.name]))
    return _BoundMemoryRun(context, arrays)


def _lay_out(array: Any) -> Any:
    """An array whose elements lie row by row; NumPy would give a scalar a dimension."""
    return np.ascontiguousarray(array).reshape(np.shape(array))


def _address_of(array: Any) -> int:
    return array.address if isinstance(array, DeviceTensor) else int(array.ctypes.data)


class _BoundMemoryRun:
    """A run over memory that is bound, which lives as long as this does."""

    def __init__(self, context: ExecutionContext, arrays: Mapping[str, Any]) -> None:
        self._execute = context.execute_async_v3
        self._arrays = arrays

    def __call__(self) -> None:
        self._execute(0)


def _is_packed(dtype: str) -> bool:
    return dtype in BY_NAME and BY_NAME[dtype].is_packed
