"""Raw bytes as an input: elements of its type, one after the other, as ``array.tofile`` writes them."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dovetail._unset_dims import shapes_option
from dovetail.errors import InputError
from dovetail.files import open_regular
from dovetail.inputs.specs import InputSpec

__all__ = ["RAW_SUFFIXES", "RawFile"]

RAW_SUFFIXES: Final = (".bin", ".raw", ".dat")


@dataclass(frozen=True)
class RawFile:
    """A file without a header: what it holds is decided by the type and the shape of its input."""

    path: Path

    def read(self, spec: InputSpec, dims: Sequence[int | None]) -> npt.NDArray[Any]:
        """The array; one size that nobody set follows from the size of the file.

        Raises:
            InputError: The file cannot be read, or its size does not fit.
        """
        where = f"'{self.path}', for {spec.where}"
        if spec.dtype == "object" or not spec.is_tensor or spec.dims is None:
            raise InputError("raw bytes are read for tensors of numbers of a known rank", where=where)
        dtype = np.dtype(spec.dtype)
        try:
            with open_regular(self.path, follow=True) as file:
                size = os.fstat(file.fileno()).st_size
                shape = _find_shape(size, dtype, dims, spec, where)
                content = file.read(size)
        except OSError as error:
            raise InputError(f"the file cannot be read: {error.strerror or error}", where=where) from error
        return np.frombuffer(bytearray(content), dtype).reshape(shape)


def _find_shape(
    size: int, dtype: np.dtype[Any], dims: Sequence[int | None], spec: InputSpec, where: str
) -> tuple[int, ...]:
    known = math.prod(dim for dim in dims if dim is not None)
    unknown = [axis for axis, dim in enumerate(dims) if dim is None]
    if len(unknown) > 1:
        option = shapes_option(spec.name, [1 if dim is None else dim for dim in dims])
        raise InputError(
            f"the shape is not known: nobody set {len(unknown)} of its sizes", where=where, fix=f"set it with {option}"
        )
    step = known * dtype.itemsize
    if unknown and step and size % step == 0:
        dims = [size // step if dim is None else dim for dim in dims]
    shape = tuple(-1 if dim is None else dim for dim in dims)
    if -1 in shape or math.prod(shape) * dtype.itemsize != size:
        multiple = "a multiple of " if unknown else ""
        text = "x".join("?" if dim == -1 else str(dim) for dim in shape) or "scalar"
        expected = f"{multiple}{step} bytes for {dtype.name} {text}"
        raise InputError(
            "the file has another size than the input", where=where, expected=expected, got=f"{size} bytes"
        )
    return shape
