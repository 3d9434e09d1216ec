"""The datatypes of the protocol, and the array type of each."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import ml_dtypes
import numpy as np

from dovetail_serve.errors import RequestError

__all__ = ["BYTES", "DATATYPES", "Datatype", "datatype_from_name", "name_from_dtype"]


class Datatype(NamedTuple):
    """One datatype of the protocol."""

    name: str
    dtype: np.dtype[Any]
    least_bytes: int
    """What one element takes in raw bytes; for BYTES the length before the string."""
    contents: str = ""
    """The field of typed values in gRPC; empty for those that go as raw bytes alone."""


BYTES: Final = Datatype("BYTES", np.dtype(object), 4, "bytes_contents")

DATATYPES: Final = {
    each.name: each
    for each in (
        Datatype("BOOL", np.dtype(np.bool_), 1, "bool_contents"),
        Datatype("UINT8", np.dtype(np.uint8), 1, "uint_contents"),
        Datatype("UINT16", np.dtype("<u2"), 2, "uint_contents"),
        Datatype("UINT32", np.dtype("<u4"), 4, "uint_contents"),
        Datatype("UINT64", np.dtype("<u8"), 8, "uint64_contents"),
        Datatype("INT8", np.dtype(np.int8), 1, "int_contents"),
        Datatype("INT16", np.dtype("<i2"), 2, "int_contents"),
        Datatype("INT32", np.dtype("<i4"), 4, "int_contents"),
        Datatype("INT64", np.dtype("<i8"), 8, "int64_contents"),
        Datatype("FP16", np.dtype("<f2"), 2),
        Datatype("BF16", np.dtype(ml_dtypes.bfloat16), 2),
        Datatype("FP32", np.dtype("<f4"), 4, "fp32_contents"),
        Datatype("FP64", np.dtype("<f8"), 8, "fp64_contents"),
        BYTES,
    )
}

_BY_DTYPE: Final = {each.dtype: each for each in DATATYPES.values()}


def datatype_from_name(name: str, where: str) -> Datatype:
    """The datatype that a client named.

    >>> datatype_from_name("FP32", "input 'x'").dtype
    dtype('float32')
    """
    found = DATATYPES.get(name)
    if found is None:
        raise RequestError("the datatype is not known", where=where, expected=", ".join(DATATYPES), got=name[:40])
    return found


def name_from_dtype(dtype: np.dtype[Any], where: str = "the tensor") -> str:
    """The protocol's name of an array type; types of 8 and 4 bits that are no integers of NumPy have none.

    >>> name_from_dtype(np.dtype("int64"))
    'INT64'
    """
    found = _BY_DTYPE.get(dtype)
    if found is None:
        raise RequestError(
            "the protocol has no datatype for it",
            where=where,
            expected=", ".join(DATATYPES),
            got=dtype,
            fix="add a Cast to one of these to the model",
        )
    return found.name
