"""How the types of layers are spelled in a plan, and the types of the contract that they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dovetail.types import DataType

__all__ = ["USED_TYPES"]

USED_TYPES: Final[Mapping[str, DataType]] = {
    "fp16": DataType.HALF,
    "bf16": DataType.BF16,
    "int8": DataType.INT8,
    "fp8": DataType.FP8,
}
"""The types that flags of a weakly typed build allow."""
