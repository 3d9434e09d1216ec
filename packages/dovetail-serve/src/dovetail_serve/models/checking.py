"""Checks a request against the inputs and outputs of a model, before it is queued."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from dovetail.near_names import name_known, suggest
from dovetail_serve.errors import RequestError
from dovetail_serve.models.padding import Padding
from dovetail_serve.models.pending import PendingRequest
from dovetail_serve.models.ports import ModelPorts, Port
from dovetail_serve.protocol.requests import InferRequest
from dovetail_serve.tensors.datatypes import DATATYPES

__all__ = ["RequestChecker"]

Array = Any


class RequestChecker:
    """Turns requests that fit into pending ones.

    Args:
        model: The name, for messages.
        ports: The inputs and outputs.
        max_batch_size: How many samples a request may have; 0 where the first dimension is no batch.
        padding: The dimensions in which requests that run together may differ.
    """

    def __init__(self, model: str, ports: ModelPorts, max_batch_size: int, padding: Padding) -> None:
        self._model = model
        self._inputs = ports.inputs
        self._outputs = {port.name for port in ports.outputs}
        self._max_batch_size = max_batch_size
        self._padding = padding

    def check(self, request: InferRequest) -> PendingRequest:
        """The request, ready to be queued.

        Raises:
            RequestError: A name, a type or a shape is not the model's.
        """
        arrived_ns = time.perf_counter_ns()
        given = request.inputs
        if len(given) != len(self._inputs):
            raise self._refuse_names(given)
        arrays = tuple([self._take(port, given) for port in self._inputs])
        if request.outputs is not None:
            self._check_outputs(request.outputs)
        samples = self._count_samples(arrays) if self._max_batch_size else 1
        group = self._padding.group(arrays) if self._max_batch_size else None
        return PendingRequest(request, arrays, samples, group, arrived_ns)

    def _take(self, port: Port, given: Mapping[str, Array]) -> Array:
        array = given.get(port.name)
        if array is None:
            raise self._refuse_names(given)
        if array.dtype is not port.dtype and array.dtype != port.dtype:
            raise self._refuse(port, "wrong datatype", port.datatype, _name_type(array))
        sizes = port.sizes
        if sizes is not None and array.shape != sizes and not _fits(sizes, array.shape):
            raise self._refuse(port, "wrong shape", list(sizes), list(array.shape))
        return array if port.datatype != "BYTES" else self._decode(port, array)

    def _count_samples(self, arrays: tuple[Array, ...]) -> int:
        samples: int = arrays[0].shape[0]
        for port, array in zip(self._inputs, arrays, strict=True):
            if array.shape[0] != samples:
                raise self._refuse(port, "another number of samples than the first input", samples, array.shape[0])
        if not 0 < samples <= self._max_batch_size:
            expected = f"1 to {self._max_batch_size} in the first dimension"
            raise self._refuse(self._inputs[0], "wrong number of samples", expected, samples)
        self._padding.check(self._model, arrays)
        return samples

    def _check_outputs(self, names: Any) -> None:
        for name in names:
            if name not in self._outputs:
                hint = suggest(name, self._outputs)
                what = f"there is no output '{name[:100]}'" + (f", {hint}" if hint else "")
                raise RequestError(what, where=self._where, expected=name_known(sorted(self._outputs)))

    def _refuse_names(self, given: Mapping[str, Array]) -> RequestError:
        """Which inputs are missing, or are not the model's."""
        names = [port.name for port in self._inputs]
        for name in given:
            if name not in names:
                hint = suggest(name, names)
                what = f"there is no input '{name[:100]}'" + (f", {hint}" if hint else "")
                return RequestError(what, where=self._where, expected=name_known(names))
        missing = ", ".join(f"'{name}'" for name in names if given.get(name) is None)
        return RequestError(f"nothing was given for {missing}", where=self._where, expected=name_known(names))

    def _decode(self, port: Port, array: Array) -> Array:
        """Strings, which engines have as ``str``, from bytes."""
        texts = np.empty(array.shape, dtype=object)
        flat = texts.reshape(-1)
        try:
            for i, item in enumerate(array.reshape(-1)):
                flat[i] = item if isinstance(item, str) else bytes(item).decode()
        except UnicodeDecodeError:
            raise self._refuse(port, "an element is no UTF-8", "texts", "other bytes") from None
        return texts

    def _refuse(self, port: Port, what: str, expected: object, got: object) -> RequestError:
        return RequestError(what, where=f"{self._where}, input '{port.name}'", expected=expected, got=got)

    @property
    def _where(self) -> str:
        return f"model '{self._model}'"


def _fits(sizes: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    if len(sizes) != len(shape):
        return False
    return all(size in (got, -1) for size, got in zip(sizes, shape, strict=True))


def _name_type(array: Array) -> str:
    known = {each.dtype: each.name for each in DATATYPES.values()}
    return known.get(array.dtype, str(array.dtype))
