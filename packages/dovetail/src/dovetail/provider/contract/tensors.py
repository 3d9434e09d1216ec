"""What providers are told of tensors: type, dimensions, layout, and the memory they lie in."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.provider.schemas.type_names import onnx_type_from_dtype

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


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """One tensor at the border of a step.

    >>> TensorSpec(dtype="float32", dims=(None, 3)).dims
    (None, 3)
    """

    dtype: str
    """The NumPy name, such as ``float32`` or ``bfloat16``."""
    dims: tuple[int | None, ...] | None = None
    """Sizes, None for those that are not fixed; None when nothing is said of the shape."""
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

    @property
    def onnx_type(self) -> str:
        """The ONNX spelling of its type, such as ``tensor(float)``."""
        return self.type or onnx_type_from_dtype(self.dtype)
