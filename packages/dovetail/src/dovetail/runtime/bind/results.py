"""Results of a run that are not brought to the host: in arrays of the caller's on a device, or in new memory there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dovetail.errors import InputError
from dovetail.plan.manifest import TensorRecord
from dovetail.provider.interfaces import Provider
from dovetail.runtime.devices.arrays import CallerArrays
from dovetail.runtime.devices.streams import ContextDevices
from dovetail.runtime.devices.tensors import DeviceTensor
from dovetail.runtime.memory.blocks import DeviceBlock
from dovetail.runtime.steps.frame import Shape

__all__ = ["GivenResult", "KeptResult", "SharedResult", "make_results"]


class GivenResult:
    """An output that is written to an array of the caller's."""

    def __init__(self, given: Any, target: Any) -> None:
        self._given = given
        self.target = target
        """What the steps write to."""

    def give(self, result: Any) -> Any:
        """What the caller gets: the object that was given."""
        return self._given


class SharedResult:
    """An output in the memory of an input, which stays on its device as a handle.

    Args:
        provider: In whose memory.
        devices: The streams of the context.
        owners: What keeps the input alive.
    """

    target = None
    """What the steps write to: the border gives them the input."""

    def __init__(self, provider: Provider, devices: ContextDevices, owners: Sequence[object]) -> None:
        self._provider, self._devices, self._owners = provider, devices, tuple(owners)

    def give(self, result: Any) -> DeviceTensor:
        """The handle, which keeps the input's memory."""
        return _make_handle(self._provider, result, self._owners, self._devices)


class KeptResult:
    """An output that stays on its device as a handle.

    Args:
        provider: In whose memory.
        shape: None when only the run tells it, and the step brings the memory.
        dtype: The type of elements.
        devices: The streams of the context.
    """

    def __init__(self, provider: Provider, shape: Shape | None, dtype: np.dtype[Any], devices: ContextDevices) -> None:
        self._provider = provider
        self._devices = devices
        self._block: DeviceBlock | None = None
        self.target: Any = None
        """What the steps write to; None when the step brings the memory."""
        if shape is not None:
            self._block = DeviceBlock(provider, max(math.prod(shape) * dtype.itemsize, 1))
            self.target = self._block.view(0, shape, dtype)

    def give(self, result: Any) -> DeviceTensor:
        """The handle; on a queue of the caller's, which nobody waited for, it knows when the contents are there."""
        return _make_handle(self._provider, result, self._block, self._devices)


def _make_handle(provider: Provider, result: Any, owner: object, devices: ContextDevices) -> DeviceTensor:
    stream = devices.stream(provider)
    event = None if stream is None or stream.is_own else stream.record()
    return DeviceTensor(provider, result, owner, event)


Result = GivenResult | KeptResult | SharedResult


def make_results(
    tensors: Sequence[TensorRecord],
    shapes: Sequence[Shape | None],
    outputs: Mapping[str, Any],
    *,
    callers: CallerArrays,
    devices: ContextDevices,
    keep: bool,
) -> dict[int, Result]:
    """The results of one run that are not brought to the host, by position.

    Args:
        tensors: The outputs of the engine.
        shapes: Theirs in this run; None where only the run tells.
        outputs: What the caller gave to be written to, by name.
        callers: What takes arrays of devices.
        devices: The streams of the context.
        keep: Whether all others that lie on a device stay there.
    """
    _check_names(outputs, tensors)
    found: dict[int, Result] = {}
    for position, tensor in enumerate(tensors):
        if tensor.name in outputs:
            given = outputs[tensor.name]
            if shapes[position] is None:
                raise InputError(
                    "only the run tells its shape, so it is written to no array of the caller's",
                    where=f"output '{tensor.name}'",
                    fix="leave it out, or keep it on the device",
                )
            found[position] = GivenResult(given, callers.import_output(given, tensor))
        elif keep and tensor.memory and tensor.alias is not None:
            found[position] = SharedResult(devices.providers[tensor.memory], devices, callers.owners)
        elif keep and tensor.memory:
            provider = devices.providers[tensor.memory]
            found[position] = KeptResult(provider, shapes[position], np.dtype(tensor.dtype), devices)
    return found


def _check_names(outputs: Mapping[str, Any], tensors: Sequence[TensorRecord]) -> None:
    possible = [tensor.name for tensor in tensors if tensor.memory]
    for name in outputs:
        if name not in possible:
            raise InputError(
                f"'{name}' is no output that lies on a device", expected=f"one of: {', '.join(possible) or 'none'}"
            )
