"""Casts of floating-point numbers to integers: values and the results that every provider gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from tests.cuda.images import HEAD

__all__ = ["FRACTIONS", "TARGETS", "make_cast", "truncate"]

FRACTIONS = np.array([-0.9, -0.0, 0.5, 1.7, 2.5, 127.9, 254.5, 255.99, -300.25, -1.5, 256.0, 300.7], np.float32)
"""Fractions inside of the range of UINT8, then values outside of it, whose low bits are kept."""

TARGETS = ("uint8", "int8", "uint16", "int16", "int32", "int64")


def make_cast(source: str, target: str) -> Any:
    """Return a model that casts ``FRACTIONS`` from one type to another."""
    number = TensorProto.DataType.Value(target.upper())
    return onnx.parser.parse_model(
        f"{HEAD}({source}[{FRACTIONS.size}] x) => ({target}[{FRACTIONS.size}] y) {{ y = Cast<to={number}>(x) }}"
    )


def truncate(values: np.ndarray, target: str) -> np.ndarray:
    """Truncate towards zero and keep the low bits."""
    return np.trunc(values.astype(np.float64)).astype(np.int64).astype(target)
