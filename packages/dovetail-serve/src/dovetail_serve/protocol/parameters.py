"""What parameters of a request mean, over HTTP and gRPC alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dovetail_serve.errors import RequestError, UnsupportedError

__all__ = ["MOST_MICROSECONDS", "Scalar", "check_tensor_parameters", "read_whole_number"]

Scalar = bool | int | float | str

MOST_MICROSECONDS: Final = 2**63 - 1

_UNSUPPORTED: Final = {
    "sequence_id": "sequences of requests",
    "sequence_start": "sequences of requests",
    "sequence_end": "sequences of requests",
    "shared_memory_region": "shared memory",
    "shared_memory_byte_size": "shared memory",
    "shared_memory_offset": "shared memory",
    "classification": "classification of outputs",
}


def check_tensor_parameters(parameters: Mapping[str, Scalar], where: str) -> None:
    """Raise for a parameter that would change the result and that the server does not know how to obey."""
    for name in parameters:
        if name in _UNSUPPORTED and parameters[name] not in (0, "", False):
            raise UnsupportedError(f"not supported: {_UNSUPPORTED[name]}", where=where, got=f"parameter '{name}'")


def read_whole_number(parameters: Mapping[str, Scalar], name: str) -> int:
    """The value of ``priority`` or ``timeout``; 0 where it is not given.

    >>> read_whole_number({"timeout": 500}, "timeout")
    500
    """
    value = parameters.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_MICROSECONDS:
        expected = "a whole number, 0 or more"
        raise RequestError("the parameter is wrong", where=f"parameter '{name}'", expected=expected, got=value)
    return value
