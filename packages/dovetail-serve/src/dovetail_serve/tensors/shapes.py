"""How many elements a shape from a client has, without trusting it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from dovetail_serve.errors import RequestError, TooLargeError
from dovetail_serve.tensors.datatypes import Datatype

__all__ = ["MOST_DIMENSIONS", "count_elements"]

MOST_DIMENSIONS: Final = 32


def count_elements(shape: Sequence[int], datatype: Datatype, most_bytes: int, where: str) -> int:
    """The number of elements, when they fit into ``most_bytes``.

    >>> from dovetail_serve.tensors.datatypes import DATATYPES
    >>> count_elements((2, 3), DATATYPES["FP32"], 24, "input 'x'")
    6
    """
    if len(shape) > MOST_DIMENSIONS:
        raise RequestError("the shape has too many dimensions", where=where, expected=MOST_DIMENSIONS, got=len(shape))
    if shape and min(shape) < 0:
        raise RequestError("the shape has a negative dimension", where=where, got=list(shape))
    count = math.prod(shape)
    # A dimension of 0 must not hide others that no array can have.
    extent = count or math.prod(size for size in shape if size)
    if extent * datatype.least_bytes > most_bytes:
        raise TooLargeError(
            "the tensor is larger than the server takes",
            where=where,
            expected=f"at most {most_bytes} bytes",
            got=f"{list(shape)} of {datatype.name}",
            fix="send less at once, or start the server with a larger limit",
        )
    return count
