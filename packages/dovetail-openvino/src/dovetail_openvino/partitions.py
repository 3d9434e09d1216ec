"""Compiled partitions and their runs.

Arrays are handed to OpenVINO as views of their memory, and results are written where they belong. Views are by address:
no array of a caller lives longer because of one. While the same memory comes back nothing is handed over again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import openvino as ov

from dovetail.errors import ProviderError
from dovetail.provider.contract.loaded import BindContext, BoundPartition, LoadedPartition
from dovetail.provider.devices import ProfileEvent
from dovetail.provider.interfaces import TensorSpec
from dovetail_openvino.device import explain, find_wide, share

__all__ = ["CompiledPartition"]

Array = npt.NDArray[Any]
_COPIED_BYTES: Final = 16 * 1024
"""Up to this, copying a result is cheaper than having it written to a new array."""


@dataclass(kw_only=True)
class CompiledPartition(LoadedPartition):
    """One compiled model, which all contexts of an engine share."""

    name: str
    compiled: Any
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    weights: Mapping[str, Any]
    """Memory that the model uses and does not own."""
    note_events: Callable[[Iterable[ProfileEvent]], None] | None
    """Who wants to know what the nodes do."""

    def bind(self, context: BindContext) -> BoundPartition:
        """The partition with a request of its own."""
        return _Request(self)

    def close(self) -> None:
        """Let the model go; it ends with the last request."""
        self.compiled = None


class _Binding:
    """The memory that an input or an output of a request uses."""

    def __init__(self, set_tensor: Callable[[int, Any], None], index: int) -> None:
        self._set_tensor = set_tensor
        self._index = index
        self._place: tuple[int, tuple[int, ...]] | None = None
        """Address and shape of a caller's memory that is bound."""

    def bind(self, array: Array) -> None:
        """Have the memory of an array used in the next run, until which it must live."""
        place = (array.__array_interface__["data"][0], array.shape)
        if place != self._place:
            self._set_tensor(self._index, share(array))
            self._place = place


class _Input(_Binding):
    def __init__(self, request: Any, index: int, spec: TensorSpec) -> None:
        super().__init__(request.set_input_tensor, index)
        self._is_wide = spec.dtype == "int64"
        self._buffer: Array | None = None
        """Memory of its own that is bound."""

    def take(self, array: Array) -> None:
        """Have an array read in the next run; a small one is copied, which is faster than to look where it lies."""
        if self._is_wide and (got := find_wide(array)) is not None:
            raise ProviderError("OpenVINO computes in 32 bits", expected="smaller integers", got=got, fix="use 'cpu'")
        if array.nbytes > _COPIED_BYTES and array.flags.c_contiguous:
            self._buffer = None
            self.bind(array)
            return
        if self._buffer is None or self._buffer.shape != array.shape:
            self._buffer = np.empty(array.shape, array.dtype)
            self.bind(self._buffer)
        self._buffer[...] = array


class _Output(_Binding):
    def __init__(self, request: Any, index: int, spec: TensorSpec) -> None:
        super().__init__(request.set_output_tensor, index)
        declared = request.model_outputs[index].partial_shape
        self._get_tensor: Callable[[int], Any] = request.get_output_tensor
        self._dtype = np.dtype(spec.dtype)
        self._buffer = np.empty(declared.to_shape(), self._dtype) if declared.is_static else None
        self._own = self._get_tensor(index) if self._buffer is None else share(self._buffer)
        self._set_tensor(index, self._own)

    def prepare(self, target: Array | None) -> Array | None:
        """Have the next run write to an array, or without one to memory of its own; a large result gets a new one."""
        if target is None and self._buffer is not None and self._buffer.nbytes > _COPIED_BYTES:
            target = np.empty_like(self._buffer)
        if target is not None:
            self.bind(target)
        elif self._place is not None:
            self._set_tensor(self._index, self._own)
            self._place = None
        return target

    def finish(self, target: Array | None) -> Array:
        """The array that was written, or a copy of the memory of its own."""
        if self._buffer is not None:
            return self._buffer.copy() if target is None else target
        result: Array = self._get_tensor(self._index).data
        if target is None:
            return result.copy().view(self._dtype)
        if result.shape != target.shape:
            self._place = (0, ())
            what, expected = "a result has another shape than the plan says", str(target.shape)
            raise ProviderError(what, expected=expected, got=str(result.shape))
        return target


class _Request(BoundPartition):
    """The partition in one bound run."""

    def __init__(self, partition: CompiledPartition) -> None:
        self._partition = partition
        self._request = request = partition.compiled.create_infer_request()
        self._inputs = [_Input(request, index, spec) for index, spec in enumerate(partition.inputs)]
        self._outputs = [_Output(request, index, spec) for index, spec in enumerate(partition.outputs)]

    def run(self, inputs: Sequence[Any], outputs: list[Any]) -> None:
        """Run once."""
        try:
            for port, array in zip(self._inputs, inputs):  # noqa: B905 - counted in the plan, here and below
                port.take(array)
            targets = [port.prepare(target) for port, target in zip(self._outputs, outputs)]  # noqa: B905
            start_us = time.perf_counter() * 1e6
            self._request.infer(share_outputs=True)
            outputs[:] = [port.finish(target) for port, target in zip(self._outputs, targets)]  # noqa: B905
        except RuntimeError as error:
            raise ProviderError(f"OpenVINO failed: {explain(error)}", where=f"step '{self._partition.name}'") from error
        if self._partition.note_events is not None:
            self._partition.note_events(self._list_events(start_us))

    def _list_events(self, start_us: float) -> Iterator[ProfileEvent]:
        """The times of all nodes: OpenVINO tells the mean of the runs so far, and that they ran in this order."""
        for node in self._request.get_profiling_info():
            if node.status == ov.ProfilingInfo.Status.EXECUTED:
                took_us, what = node.real_time.total_seconds() * 1e6, {"name": node.node_name, "kind": node.node_type}
                yield ProfileEvent(start_us=start_us, duration_us=took_us, layer=self._partition.name, **what)
                start_us += took_us
