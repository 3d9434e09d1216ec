"""Changes of type and format in the memory of a host device, in the order of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.provider.devices import Stream
from dovetail.provider.interfaces import BindContext, CompiledKernel, TensorSpec
from dovetail.runtime.steps.reformat import apply_reformat
from dovetail.testing.host_arrays import HostDeviceArray

if TYPE_CHECKING:
    from dovetail.testing.host_device import HostDevice

__all__ = ["HostDeviceReformat"]


class HostDeviceReformat(CompiledKernel):
    """One change; contexts bind it to their stream and to the logical shape of a run."""

    __slots__ = ("_device", "_dims", "_source", "_stream", "_target")

    def __init__(
        self,
        device: HostDevice,
        source: TensorSpec,
        target: TensorSpec,
        dims: tuple[int, ...] | None = None,
        stream: Stream | None = None,
    ) -> None:
        super().__init__(lambda array: self._make(array), lambda array, output: self._queue(array, output))
        self._device = device
        self._source, self._target = source, target
        self._dims = dims
        self._stream = stream

    def bind(self, context: BindContext) -> HostDeviceReformat:
        """The change for one bound run."""
        self._device.check("bind")
        return HostDeviceReformat(self._device, self._source, self._target, context.input_shapes[0], context.stream)

    def _make(self, array: HostDeviceArray) -> HostDeviceArray:
        if self._stream is not None:
            self._stream.synchronize()
        self._device.statistics.launches += 1
        return self._device.to_device(self._apply(self._device.require_own(array, "Reformat")))

    def _queue(self, array: HostDeviceArray, output: HostDeviceArray) -> None:
        source, target = (self._device.require_own(one, "Reformat") for one in (array, output))
        self._device.statistics.launches += 1
        self._device.submit(self._stream, "Reformat", lambda: target.write(self._apply(source)))

    def _apply(self, array: HostDeviceArray) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
        dims = array.shape if self._dims is None else self._dims
        return apply_reformat(array.read(), self._source, self._target, dims)
