"""Weights by name from files: an ONNX model, a ``.npz``, or a ``.safetensors`` file. Nothing in them is code."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from dovetail.decoding import judging
from dovetail.errors import InputError, ResourceError
from dovetail.files import open_regular
from dovetail.inputs.array_files import load_arrays

__all__ = ["WEIGHT_SUFFIXES", "read_weights"]

Array = npt.NDArray[Any]

WEIGHT_SUFFIXES: Final = (".onnx", ".npz", ".safetensors")
_TYPES: Final = {
    "BOOL": np.bool_,
    "U8": np.uint8,
    "I8": np.int8,
    "U16": np.uint16,
    "I16": np.int16,
    "U32": np.uint32,
    "I32": np.int32,
    "U64": np.uint64,
    "I64": np.int64,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "F32": np.float32,
    "F64": np.float64,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
}
"""The types of safetensors, by their names there."""


def read_weights(path: Path) -> dict[str, Array]:
    """The tensors of a file by name; of a model, its initializers.

    Raises:
        InputError: The file cannot be read, or is of another kind.
        ResourceError: The package that reads it is not installed.
    """
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return load_arrays(path)
    if suffix == ".safetensors":
        return _read_safetensors(path)
    if suffix == ".onnx":
        return _read_model(path)
    raise InputError("this is no file of weights", where=f"'{path}'", expected=", ".join(WEIGHT_SUFFIXES))


def _read_model(path: Path) -> dict[str, Array]:
    from dovetail.tools.sides import read_source

    initializers = read_source(path).graph.initializers
    return {name: each.const_value.numpy() for name, each in initializers.items() if each.const_value is not None}


def _read_safetensors(path: Path) -> dict[str, Array]:
    where = f"'{path}'"
    try:
        from safetensors import deserialize
    except ModuleNotFoundError as error:
        from dovetail._extras import install_line

        what = "reading this needs the package 'safetensors', which is not installed"
        raise ResourceError(what, where=where, fix=install_line("weights")) from error
    try:
        with open_regular(path, follow=True) as file:
            content = file.read()
    except OSError as error:
        raise InputError(f"the file cannot be read: {error.strerror or error}", where=where) from error
    with judging(lambda reason: InputError(f"this is no safetensors file: {reason}", where=where)):
        tensors = deserialize(content)  # type: ignore[no-untyped-call]
        return {name: _make_array(name, tensor, where) for name, tensor in tensors}


def _make_array(name: str, tensor: Any, where: str) -> Array:
    kind = _TYPES.get(tensor["dtype"])
    if kind is None:
        expected = ", ".join(_TYPES)
        raise InputError(f"tensor '{name}' has an unknown type", where=where, expected=expected, got=tensor["dtype"])
    dtype, shape = np.dtype(kind), tuple(tensor["shape"])
    if math.prod(shape) * dtype.itemsize != len(tensor["data"]):
        raise InputError(f"tensor '{name}' has another size than its shape", where=where, got=shape)
    return np.frombuffer(bytes(tensor["data"]), dtype).reshape(shape)
