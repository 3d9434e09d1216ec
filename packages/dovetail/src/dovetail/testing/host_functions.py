"""Steps of a host device: kernels of the ``cpu`` provider over the device's memory, in the order of a stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import ProviderError
from dovetail.provider.interfaces import BindContext, CompiledKernel, Stream
from dovetail.testing.host_arrays import POISON, HostDeviceArray

if TYPE_CHECKING:
    from dovetail.testing.host_device import HostDevice

__all__ = ["HostDeviceFunction"]


class HostDeviceFunction(CompiledKernel):
    """A compiled node; contexts bind it to their stream."""

    __slots__ = ("_device", "_function", "_host_inputs", "_num_outputs", "_op", "_stream", "_workspace")

    def __init__(
        self,
        device: HostDevice,
        op: str,
        function: Callable[..., Any],
        host_inputs: frozenset[int],
        num_outputs: int,
        context: BindContext | None = None,
    ) -> None:
        super().__init__(lambda *arrays: self._run(*arrays), lambda *arrays: self._queue(*arrays))
        self._device = device
        self._op = op
        self._function = function
        self._host_inputs = host_inputs
        self._num_outputs = num_outputs
        self._stream: Stream | None = None if context is None else context.stream
        self._workspace = None if context is None else device.open_workspace(context, op)

    def bind(self, context: BindContext) -> HostDeviceFunction:
        """The function for one bound run."""
        self._device.check("bind")
        return HostDeviceFunction(self._device, self._op, self._function, self._host_inputs, self._num_outputs, context)

    def _run(self, *arrays: Any) -> Any:
        """Run now, because the shape of the result is known only then; the results are new arrays."""
        if self._stream is not None:
            self._stream.synchronize()
        self._device.statistics.launches += 1
        results = self._compute([self._freeze(i, array) for i, array in enumerate(arrays)])
        made = [self._device.to_device(np.asarray(result)) for result in results]
        return made[0] if len(made) == 1 else tuple(made)

    def _queue(self, *arrays: Any) -> None:
        """Queue the work; the last arrays are the outputs."""
        count = len(arrays) - self._num_outputs
        inputs = [self._freeze(i, array) for i, array in enumerate(arrays[:count])]
        outputs = [None if array is None else self._own(array) for array in arrays[count:]]
        self._device.statistics.launches += 1
        self._device.submit(self._stream, self._op, lambda: self._write(inputs, outputs))

    def _freeze(self, position: int, array: Any) -> Any:
        """An input as it will be read: on the device when the work runs, on the host now."""
        if array is None:
            return None
        if position in self._host_inputs and isinstance(array, np.ndarray):
            return array.copy()
        return self._own(array)

    def _own(self, array: Any) -> HostDeviceArray:
        return self._device.require_own(array, self._op)

    def _compute(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        views = [array.read() if isinstance(array, HostDeviceArray) else array for array in inputs]
        with np.errstate(all="ignore"):
            result = self._function(*views)
        return result if isinstance(result, tuple) else (result,)

    def _write(self, inputs: Sequence[Any], outputs: Sequence[HostDeviceArray | None]) -> None:
        if self._workspace is not None:  # whatever else lies there is lost before it is read
            self._workspace.view()[...] = POISON
        for output, result in zip(outputs, self._compute(inputs), strict=False):
            if output is None:
                continue
            array = np.asarray(result)
            if (array.shape, array.dtype) != (output.shape, output.dtype):
                raise ProviderError(
                    f"{self._op} gave another shape or type than its output has",
                    where=f"provider '{self._device.name}'",
                    expected=f"{output.dtype.name} {output.shape}",
                    got=f"{array.dtype.name} {array.shape}",
                )
            output.write(array)
