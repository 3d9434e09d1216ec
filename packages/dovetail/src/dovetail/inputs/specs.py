"""What is known of the inputs of a model or an engine: names, types, dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dovetail.errors import InputError
from dovetail.expr import Dim

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.plan.manifest import Manifest, TensorRecord

__all__ = ["InputSpec", "specs_of_manifest", "specs_of_model", "specs_of_outputs"]


@dataclass(frozen=True, kw_only=True)
class InputSpec:
    """What must be known of an input to read something for it, or to make something up."""

    name: str
    dtype: str
    """The NumPy name of the element type; ``object`` for strings."""
    dims: Sequence[Dim] | None
    """Expressions, of which equal ones are the same size everywhere; None when even the rank is unknown."""
    tuned: Sequence[int] | None = None
    """The shape that a profile is tuned for."""
    is_shape: bool = False
    """Whether shapes depend on the contents."""
    contents: Sequence[int] | None = None
    """What a profile is tuned for, where the contents matter."""
    type: str = ""
    """The ONNX type of an input that is no plain tensor, such as ``seq(tensor(float))``."""

    @property
    def is_tensor(self) -> bool:
        """Whether one array is its value, and not a sequence or a map."""
        return "seq(" not in self.type and "map(" not in self.type

    @property
    def where(self) -> str:
        """The place for messages."""
        return f"input '{self.name}'"


def specs_of_manifest(manifest: Manifest) -> list[InputSpec]:
    """The inputs of an engine, with what its first profile is tuned for."""
    profile = manifest.profiles[0] if manifest.profiles else None
    return [_spec_of_record(tensor, profile) for tensor in manifest.inputs]


def specs_of_outputs(manifest: Manifest) -> list[InputSpec]:
    """The outputs of an engine, for whoever reads values of them from files."""
    return [_spec_of_record(tensor, None) for tensor in manifest.outputs]


def _spec_of_record(tensor: TensorRecord, profile: Any) -> InputSpec:
    shapes = None if profile is None else profile.shapes.get(tensor.name)
    values = None if profile is None else profile.values.get(tensor.name)
    return InputSpec(
        name=tensor.name,
        dtype=tensor.dtype,
        dims=tensor.dims,
        tuned=None if shapes is None else shapes[1],
        is_shape=tensor.is_shape,
        contents=None if values is None else values[1],
        type=tensor.type,
    )


def specs_of_model(model: ir.Model) -> list[InputSpec]:
    """The inputs of a model that have no initializer.

    Raises:
        InputError: An input has no type, so nothing can be made up for it.
    """
    inputs = [value for value in model.graph.inputs if value.name not in model.graph.initializers]
    return [_spec_of_value(value) for value in inputs]


def _spec_of_value(value: ir.Value) -> InputSpec:
    from dovetail.network.inference.dim_exprs import expr_from_dim
    from dovetail.network.value_types import object_type

    if value.type is None:
        raise InputError("it has no type", where=f"input '{value.name}'", fix="give it a type, or an array for it")
    dims = None if value.shape is None else [expr_from_dim(dim) for dim in value.shape]
    return InputSpec(name=value.name or "", dtype=value.type.dtype.numpy().name, dims=dims, type=object_type(value))
