"""What a file is, by how it begins: so that whoever takes the wrong one for a model or a plan is told what it is."""

from __future__ import annotations

from typing import Final

__all__ = ["START_BYTES", "describe_start", "looks_like_model", "looks_like_plan"]

START_BYTES: Final = 16
"""How much of a file is enough."""

_IR_VERSION_KEY: Final = 0x08
_MAX_IR_VERSION: Final = 0x7F
_KNOWN: Final = {
    b"PK\x03\x04": "a zip archive, as PyTorch and NumPy write them",
    b"\x93NUMPY": "an array of NumPy",
    b"\x89HDF": "an HDF5 file, as Keras writes them",
    b"\x1f\x8b": "a gzip file",
    b"ftrt": "a plan of TensorRT",
    b"ptrt": "a plan of TensorRT",
}


def looks_like_plan(start: bytes) -> bool:
    """Whether these are the first bytes of a plan: the length of its header in eight bytes, then a JSON object.

    The upper half of the length is zero, for a header has a limit. No ONNX model has such bytes there.

    >>> looks_like_plan((300).to_bytes(8, "little") + b'{"a')
    True
    """
    return len(start) > 8 and start[4:8] == bytes(4) and start[8:9] == b"{"


def looks_like_model(start: bytes) -> bool:
    """Whether these may be the first bytes of an ONNX model: it begins with the version of the format.

    >>> looks_like_model(bytes((8, 10, 18, 7)))
    True
    """
    has_version = len(start) > 1 and start[0] == _IR_VERSION_KEY and 0 < start[1] <= _MAX_IR_VERSION
    return has_version and not looks_like_plan(start)


def describe_start(start: bytes) -> str | None:
    """What a file is that is no model; None when that does not show.

    >>> describe_start(b"PK" + bytes((3, 4, 0, 0)))
    'a zip archive, as PyTorch and NumPy write them'
    """
    if looks_like_plan(start):
        return "a plan"
    return next((kind for magic, kind in _KNOWN.items() if start.startswith(magic)), None)
