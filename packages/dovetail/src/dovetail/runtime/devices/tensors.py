"""Results that stay on a device: handles that other libraries and other engines take without a copy."""

from __future__ import annotations

import math
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from dovetail.dlpack import export_dlpack
from dovetail.provider.calls import call
from dovetail.provider.devices import Event
from dovetail.provider.interfaces import Provider
from dovetail.runtime.memory.blocks import DeviceBlock

__all__ = ["CUDA_DEVICE", "DeviceTensor"]

CUDA_DEVICE: Final = 2
"""DLPack's type of device for which arrays have ``__cuda_array_interface__`` too."""


class DeviceTensor:
    """An array in the memory of a device, which lives as long as this handle or whoever imported it.

    Args:
        provider: Whose memory.
        array: The array as steps of the provider take it.
        owner: What gives the memory back when nobody has it any more.
        event: When the contents are there; None where they are.
    """

    __slots__ = ("__weakref__", "_event", "_owner", "array", "provider")
    __array_ufunc__ = None

    def __init__(self, provider: Provider, array: Any, owner: object = None, event: Event | None = None) -> None:
        self.provider = provider
        self.array = array
        self._owner = owner
        self._event = event

    @classmethod
    def copy_of(cls, provider: Provider, array: npt.NDArray[Any]) -> DeviceTensor:
        """A copy of an array of the host in the memory of a device."""
        block = DeviceBlock(provider, max(array.nbytes, 1))
        target = block.view(0, array.shape, array.dtype)
        call(provider.id, "copy", provider.copy, np.ascontiguousarray(array).reshape(array.shape), target, None)
        call(provider.id, "synchronize", provider.synchronize)
        return cls(provider, target, block)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its dimensions."""
        return tuple(self.array.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its element type."""
        dtype: np.dtype[Any] = np.dtype(self.array.dtype)
        return dtype

    @property
    def address(self) -> int:
        """Where its first element is, on the device."""
        return int(self.array.address)

    @property
    def nbytes(self) -> int:
        """How many bytes it takes."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def device(self) -> str:
        """The provider in whose memory it lies."""
        return self.provider.id

    def order_before(self, stream: int | None) -> None:
        """Have a queue wait until the contents are there, by its handle; without one the host waits."""
        if self._event is None:
            return
        if stream is None:
            call(self.device, "synchronize_event", self._event.synchronize)
            self._event = None
        else:
            queue = call(self.device, "wrap_stream", self.provider.wrap_stream, stream)
            call(self.device, "wait", queue.wait, self._event)

    def numpy(self) -> npt.NDArray[Any]:
        """A copy on the host."""
        self.order_before(None)
        copied = np.empty(self.shape, self.dtype)
        call(self.device, "copy", self.provider.copy, self.array, copied, None)
        call(self.device, "synchronize", self.provider.synchronize)
        return copied

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"an array on device '{self.device}' cannot be read on the host: call numpy() for a copy")

    def __dlpack_device__(self) -> tuple[int, int]:
        device = self.provider.dlpack_device
        if device is None:
            raise BufferError(f"provider '{self.device}' does not exchange arrays by DLPack")
        return device

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        device = self.__dlpack_device__()
        if copy or dl_device not in (None, device):
            raise BufferError("it is given out where it lies, without a copy: call numpy() for one on the host")
        if stream != -1:  # with which a consumer says that it sees to the order itself
            self.order_before(stream)
        return export_dlpack(self.address, self.shape, self.dtype, device, self._keep(), max_version=max_version)

    def _keep(self) -> object:
        return self._owner, self.array

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.__dlpack_device__()[0] != CUDA_DEVICE:
            raise AttributeError("its memory is not CUDA's")
        self.order_before(None)
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "strides": None,
            "version": 3,
        }

    def __repr__(self) -> str:
        return f"DeviceTensor(shape={self.shape}, dtype={self.dtype.name}, device='{self.device}')"
