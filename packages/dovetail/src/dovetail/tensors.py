"""What a tensor is, in one form for every room: type, dimensions, layout, and the memory that it lies in.

Networks, back ends, plugins and plans each write types and dimensions in their own way. They are turned into a
``TensorSpec`` where they come in, and back where they go out; records of a plan are specs with more fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
import numpy as np

from dovetail.element_types import onnx_type_from_dtype
from dovetail.expr import Dim, dims_from_sizes, sizes_from_dims
from dovetail.types import DataType, TensorFormat, data_type_from_numpy

__all__ = ["ShapeRange", "TensorSpec"]


@dataclass(frozen=True, kw_only=True)
class ShapeRange:
    """The shapes that a tensor can have in one profile."""

    min: tuple[int, ...]
    opt: tuple[int, ...]
    """The shape to be fast for."""
    max: tuple[int | None, ...]
    """None for a dimension without a bound."""

    @property
    def is_fixed(self) -> bool:
        """Whether there is only one shape."""
        return self.min == self.max


class TensorSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One tensor: what it holds, and how and where it lies.

    >>> TensorSpec.of("float32", (None, 3)).sizes
    (None, 3)
    """

    dtype: str
    """The NumPy name, such as ``float32`` or ``bfloat16``; ``object`` for strings."""
    dims: tuple[Dim, ...] | None = None
    """An expression a dimension, None for what only the run tells; None when nothing is said of the shape."""
    shapes: ShapeRange | None = None
    """The shapes of the profile that is built for; None at run time, and for what only the run tells."""
    format: str = "LINEAR"
    """The name of a ``TensorFormat``."""
    scale: float = -1.0
    """What an INT8 element stands for; -1 where there is no scale."""
    memory: str = ""
    """The provider in whose memory it lies; empty for host memory."""
    type: str = ""
    """Sequences, optionals, maps and strings: the ONNX type, such as ``seq(tensor(float))``."""

    @classmethod
    def of(cls, dtype: str, sizes: Iterable[int | None] | None = None) -> TensorSpec:
        """A tensor of a type, with the sizes that are fixed and None for the others."""
        return TensorSpec(dtype=dtype, dims=None if sizes is None else dims_from_sizes(sizes))

    @property
    def sizes(self) -> tuple[int | None, ...] | None:
        """The sizes that are fixed, None for the others; None when nothing is said of the shape."""
        return None if self.dims is None else sizes_from_dims(self.dims)

    @property
    def fixed_shape(self) -> tuple[int, ...] | None:
        """The one shape that it always has; None where a size is not fixed."""
        sizes = self.sizes
        return None if sizes is None or None in sizes else tuple([size for size in sizes if size is not None])

    @property
    def rank(self) -> int | None:
        """How many dimensions it has; None when nobody knows."""
        return None if self.dims is None else len(self.dims)

    @property
    def onnx_type(self) -> str:
        """The ONNX spelling of its type, such as ``tensor(float)``."""
        return self.type or onnx_type_from_dtype(self.dtype)

    @property
    def data_type(self) -> DataType:
        """The type as plugins are told it."""
        return data_type_from_numpy(np.dtype(self.dtype))

    @property
    def tensor_format(self) -> TensorFormat:
        """The format as plugins are told it."""
        return TensorFormat[self.format]

    @property
    def is_linear(self) -> bool:
        """Whether its elements lie row by row."""
        return self.format == TensorFormat.LINEAR.name
