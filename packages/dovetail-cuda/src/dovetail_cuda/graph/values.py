"""What the graph says of values and attributes, as the planner takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail_cuda.lower.tensors import refuse

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["find_type", "name_of", "read_attribute"]


def name_of(value: ir.Value) -> str:
    """The name of a value, which is that of its buffer where it has one."""
    return value.name or ""


def find_type(value: ir.Value) -> str:
    """The type of a value."""
    if value.dtype is None:
        raise refuse(f"the type of '{value.name}' is not known")
    return str(value.dtype.numpy().name)


def read_attribute(attribute: Any) -> Any:
    """The value of an attribute as kernels take it."""
    value = attribute.value
    if hasattr(value, "numpy"):
        return value.numpy()
    return value.decode() if isinstance(value, bytes) else value
