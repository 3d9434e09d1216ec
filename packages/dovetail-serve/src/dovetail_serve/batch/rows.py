"""What one row is: the inputs of a model without the dimension of the batch, where it has one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from dovetail.errors import InputError, UsageError
from dovetail.expr import Dim, constant_of
from dovetail.inputs.specs import InputSpec, specs_of_manifest, specs_of_outputs

if TYPE_CHECKING:
    from dovetail.plan.manifest import Manifest

__all__ = ["Row", "RowForm", "dims_text", "find_row_form", "require_dims", "require_fit", "require_type"]

Array = npt.NDArray[Any]

_DEFAULT_ROWS: Final = 32


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a file: its values, or why it has none."""

    index: int
    values: Mapping[str, Array]
    kept: Mapping[str, Any]
    """What results have besides the outputs."""
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class RowForm:
    """How rows become inputs of a run, and its outputs rows."""

    inputs: tuple[InputSpec, ...]
    """Of one row."""
    full_inputs: tuple[InputSpec, ...]
    """Of one run."""
    outputs: tuple[InputSpec, ...]
    """Of one row."""
    has_batch_axis: bool
    """Whether the first dimension of every input and output counts rows."""
    least_rows: int
    most_rows: int
    """How many rows one run takes."""


def find_row_form(manifest: Manifest, batch_size: int | None = None) -> RowForm:
    """What a row of a model is.

    The first dimension counts rows where it is the same expression in every input and output, or 1 everywhere.

    Raises:
        InputError: An input or output is no tensor.
        UsageError: The model does not take so many rows at once.
    """
    inputs, outputs = specs_of_manifest(manifest), specs_of_outputs(manifest)
    _require_tensors([*inputs, *outputs])
    firsts = [_first_dim(spec) for spec in (*inputs, *outputs)]
    is_same = bool(inputs) and firsts[0] is not None and all(first == firsts[0] for first in firsts)
    varies = is_same and constant_of(firsts[0]) is None
    has_axis = varies or (is_same and constant_of(firsts[0]) == 1)
    least, most = _find_bounds(manifest, inputs, batch_size) if varies else (1, 1)
    if not varies and (batch_size or 1) != 1:
        what = "the model takes one row at a time: not all its inputs and outputs have one varying first dimension"
        raise UsageError(what, where="--batch-size", expected=1, got=batch_size)
    return RowForm(
        inputs=tuple(_drop_first(inputs) if has_axis else inputs),
        full_inputs=tuple(inputs),
        outputs=tuple(_drop_first(outputs) if has_axis else outputs),
        has_batch_axis=has_axis,
        least_rows=least,
        most_rows=most,
    )


def _require_tensors(specs: Iterable[InputSpec]) -> None:
    for spec in specs:
        if not spec.is_tensor:
            raise InputError(
                "a batch runs over tensors", where=f"'{spec.name}'", expected="a tensor", got=spec.type or spec.dtype
            )


def _first_dim(spec: InputSpec) -> Dim:
    return spec.dims[0] if spec.dims else None


def _drop_first(specs: Sequence[InputSpec]) -> list[InputSpec]:
    return [dataclasses.replace(spec, dims=tuple(spec.dims or ())[1:], tuned=None) for spec in specs]


def _find_bounds(manifest: Manifest, inputs: Sequence[InputSpec], batch_size: int | None) -> tuple[int, int]:
    """The least and the most rows of a run, by what profiles allow."""
    name = inputs[0].name
    ranges = [(low[0], high[0]) for profile in manifest.profiles for low, _, high in _shapes_of(profile, name)]
    least, most = (min(low for low, _ in ranges), max(high for _, high in ranges)) if ranges else (1, 0)
    if batch_size is not None and (batch_size < least or (most and batch_size > most)):
        fix = "choose another size, or build the plan with another profile"
        raise UsageError("no profile allows it", where="--batch-size", expected=f"{least} to {most}", fix=fix)
    return least, batch_size or min(most or _DEFAULT_ROWS, max(least, 1024))


def _shapes_of(profile: Any, name: str) -> list[tuple[list[int], list[int], list[int]]]:
    return [profile.shapes[name]] if name in profile.shapes else []


def require_fit(array: Array, spec: InputSpec, where: str) -> Array:
    """The array of a row with the type of its input.

    Raises:
        InputError: Type or shape do not fit.
    """
    require_dims(array.shape, spec, where)
    return require_type(array, spec, where)


def require_type(array: Array, spec: InputSpec, where: str) -> Array:
    """The array with the type of its input; a type whose values all fit is converted.

    Raises:
        InputError: The type does not fit.
    """
    dtype = np.dtype(spec.dtype)
    if array.dtype == dtype:
        return array
    if dtype.kind == "O" or array.dtype.kind in "OV" or not np.can_cast(array.dtype, dtype, "safe"):
        fix = f"store it as {dtype.name}"
        raise InputError("the type does not fit", where=where, expected=dtype.name, got=array.dtype.name, fix=fix)
    return array.astype(dtype)


def require_dims(shape: Sequence[int], spec: InputSpec, where: str) -> None:
    """Check the sizes of a row that are fixed.

    Raises:
        InputError: They differ.
    """
    if spec.dims is None:
        return
    sizes = [constant_of(dim) for dim in spec.dims]
    fits = len(sizes) == len(shape) and all(size in (None, got) for size, got in zip(sizes, shape, strict=True))
    if not fits:
        got = "x".join(map(str, shape)) or "one number"
        raise InputError("the shape of a row does not fit", where=where, expected=dims_text(spec), got=got)


def dims_text(spec: InputSpec) -> str:
    """The shape of a row for messages.

    >>> from dovetail.expr import Constant
    >>> dims_text(InputSpec(name="x", dtype="float32", dims=[Constant(3), None]))
    '3x?'
    """
    if spec.dims is None:
        return "any shape"
    sizes = [constant_of(dim) for dim in spec.dims]
    return "x".join("?" if size is None else str(size) for size in sizes) or "one number"
