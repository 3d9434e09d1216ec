"""The layout of network inputs and outputs: row by row, unless the network allows only others."""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

from dovetail.errors import BuildError
from dovetail.formats import formats_for
from dovetail.network.inference.shapes import data_type_from_ir
from dovetail.types import TensorFormat

__all__ = ["io_format"]

_KEY: Final = "dovetail.formats"


def io_format(value: ir.Value) -> TensorFormat:
    """The format a caller binds a tensor in: LINEAR when it is allowed, else the first allowed one that exists."""
    mask = int(value.metadata_props.get(_KEY, 1 << TensorFormat.LINEAR))
    if mask & 1 << TensorFormat.LINEAR:
        return TensorFormat.LINEAR
    dtype = data_type_from_ir(value.dtype)
    rank = 0 if value.shape is None else len(value.shape)
    possible = () if dtype is None else formats_for(dtype, rank)
    for candidate in possible:
        if mask & 1 << candidate:
            return candidate
    raise BuildError(
        "none of the allowed formats exists for its type and rank",
        where=f"tensor '{value.name}'",
        expected=", ".join(f.name for f in possible),
        got=", ".join(f.name for f in TensorFormat if mask & 1 << f),
        fix="allow LINEAR, or one of the expected formats",
    )
