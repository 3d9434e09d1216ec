"""Pads requests of different sizes to one, so that they run together, and cuts their outputs back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dovetail_serve.errors import RequestError
from dovetail_serve.models.ports import ModelPorts, Port, UnservableError
from dovetail_serve.repository.settings import PaddedDimension

__all__ = ["Padding"]

Array = Any


@dataclass(frozen=True, slots=True)
class _Dimension:
    """One padded dimension by the numbers of inputs and outputs."""

    inputs: tuple[tuple[int, int, float], ...]
    """Input, axis, value."""
    outputs: tuple[tuple[int, int], ...]
    """Output, axis."""
    multiple: int

    def size_of(self, arrays: Sequence[Array]) -> int:
        """The size that a request has."""
        index, axis, _ = self.inputs[0]
        size: int = arrays[index].shape[axis]
        return size

    def round_up(self, size: int) -> int:
        """The next multiple."""
        return -(-size // self.multiple) * self.multiple


class Padding:
    """The padded dimensions of a model; without any, requests of one shape run together.

    Args:
        ports: The inputs and outputs.
        declared: What the config declares.

    Raises:
        UnservableError: The config names a dimension that the model does not have, or that does not vary.
    """

    def __init__(self, ports: ModelPorts, declared: Sequence[PaddedDimension] = ()) -> None:
        self._names = [port.name for port in ports.inputs]
        self._dimensions = [_resolve(each, ports, i) for i, each in enumerate(declared)]

    @property
    def is_declared(self) -> bool:
        """Whether anything is padded."""
        return bool(self._dimensions)

    def group(self, arrays: Sequence[Array]) -> object:
        """What must be equal in requests that run together: sizes after the first, without those that are padded."""
        if not self._dimensions:
            return arrays[0].shape[1:] if len(arrays) == 1 else tuple([array.shape[1:] for array in arrays])
        shapes = [list(array.shape[1:]) for array in arrays]
        for dimension in self._dimensions:
            for index, axis, _ in dimension.inputs:
                shapes[index][axis - 1] = -1
        return tuple(map(tuple, shapes))

    def check(self, model: str, arrays: Sequence[Array]) -> None:
        """Check that inputs which are padded together have one size.

        Raises:
            RequestError: They have not.
        """
        for dimension in self._dimensions:
            size = dimension.size_of(arrays)
            for index, axis, _ in dimension.inputs:
                got = arrays[index].shape[axis]
                if got != size:
                    where = f"model '{model}', input '{self._names[index]}', dimension {axis}"
                    raise RequestError("another size than the other padded inputs", where=where, expected=size, got=got)

    def pad(self, requests: Sequence[Sequence[Array]]) -> Sequence[Sequence[Array]]:
        """The arrays of requests, all of one size in the padded dimensions."""
        if not self._dimensions:
            return requests
        padded = [list(arrays) for arrays in requests]
        for dimension in self._dimensions:
            target = dimension.round_up(max(dimension.size_of(arrays) for arrays in requests))
            for arrays in padded:
                for index, axis, value in dimension.inputs:
                    arrays[index] = _pad_axis(arrays[index], axis, target, value)
        return padded

    def cut(self, arrays: Sequence[Array], outputs: list[Array]) -> list[Array]:
        """The outputs of one request without what was padded."""
        for dimension in self._dimensions:
            size = dimension.size_of(arrays)
            for index, axis in dimension.outputs:
                if outputs[index].shape[axis] > size:
                    cut = outputs[index][(slice(None),) * axis + (slice(size),)]
                    outputs[index] = np.ascontiguousarray(cut)
        return outputs


def _pad_axis(array: Array, axis: int, size: int, value: float) -> Array:
    missing = size - array.shape[axis]
    if not missing:
        return array
    widths = [(0, missing if i == axis else 0) for i in range(array.ndim)]
    return np.pad(array, widths, constant_values=np.asarray(value).astype(array.dtype))


def _resolve(declared: PaddedDimension, ports: ModelPorts, number: int) -> _Dimension:
    where = f"config.toml, 'padding[{number}]'"
    inputs = [
        (_find(ports.inputs, name, axis, f"{where}, input"), axis, declared.values.get(name, 0))
        for name, axis in declared.inputs.items()
    ]
    outputs = [(_find(ports.outputs, name, axis, f"{where}, output"), axis) for name, axis in declared.outputs.items()]
    return _Dimension(tuple(inputs), tuple(outputs), declared.multiple)


def _find(ports: Sequence[Port], name: str, axis: int, where: str) -> int:
    names = [port.name for port in ports]
    if name not in names:
        raise UnservableError(f"there is no '{name}'", where=where, expected=", ".join(names))
    sizes = ports[names.index(name)].sizes
    if sizes is not None and (axis >= len(sizes) or sizes[axis] != -1):
        raise UnservableError(
            f"dimension {axis} does not vary",
            where=f"{where} '{name}'",
            expected="a dimension that is -1",
            got=list(sizes),
        )
    if ports[names.index(name)].datatype == "BYTES":
        raise UnservableError("texts are not padded", where=f"{where} '{name}'", expected="numbers")
    return names.index(name)
