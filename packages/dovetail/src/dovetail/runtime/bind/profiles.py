"""Checking that an input fits the engine and the profile in use."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.errors import InputError, UsageError
from dovetail.expr import Constant, Dim, Symbol
from dovetail.plan.manifest import Manifest, ProfileRecord, TensorRecord
from dovetail.runtime.steps.base import Array

__all__ = ["check_profile", "check_values", "find_profile", "known_dims"]

_Bounds = tuple[list[int], list[int], list[int]]


def known_dims(tensor: TensorRecord) -> tuple[Dim, ...]:
    """The dims of a tensor's record.

    Raises:
        UsageError: Only the run tells how many it has.
    """
    if tensor.dims is None:
        raise UsageError(
            f"{tensor.type} has no shape" if tensor.type else "only the run tells its number of dimensions",
            where=f"tensor '{tensor.name}'",
            fix="look at what engine(...) returns"
            if tensor.type
            else "set an output allocator, which is told the shape, or call engine(...)",
        )
    return tensor.dims


def check_profile(manifest: Manifest, profile: int, tensor: TensorRecord, shape: Sequence[int]) -> None:
    """Raise an error that shows what the engine allows, unless the shape is allowed."""
    dims = tensor.dims
    bounds = manifest.profiles[profile].shapes.get(tensor.name) if manifest.profiles else None
    if dims is not None and (len(shape) != len(dims) or not _agrees(dims, shape)):
        allowed = ", ".join(map(_describe_dim, dims)) if bounds is None else _describe_bounds(bounds)
        raise InputError("wrong shape", where=f"input '{tensor.name}'", expected=f"({allowed})", got=tuple(shape))
    if min(shape, default=0) < 0:
        raise InputError("a dimension is negative", where=f"input '{tensor.name}'", got=tuple(shape))
    if bounds is not None and not _allows(bounds, shape):
        allowed = _describe_bounds(bounds)
        ranges = "x".join(str(n) for n in shape)
        raise InputError(
            f"shape {tuple(shape)} is outside profile {profile}, which allows ({allowed})",
            where=f"input '{tensor.name}'",
            fix=f"build with a profile that covers it (--shapes {tensor.name}:...:{ranges}), or use another profile",
        )


def _agrees(dims: Sequence[Dim], shape: Sequence[int]) -> bool:
    return all(not isinstance(dim, Constant) or dim.value == size for dim, size in zip(dims, shape, strict=True))


def _describe_bounds(bounds: _Bounds) -> str:
    return ", ".join(str(lo) if lo == hi else f"{lo}..{hi}" for lo, hi in zip(bounds[0], bounds[2], strict=True))


def _describe_dim(dim: Dim) -> str:
    """A dimension as the author of the model wrote it; names that begin so are ours."""
    return "any" if isinstance(dim, Symbol) and dim.name.startswith("_d") else str(dim)


def check_values(manifest: Manifest, profile: int, arrays: Sequence[Array]) -> None:
    """Raise unless the contents of shape inputs are in the profile, as memory and shapes were planned for that."""
    values = manifest.profiles[profile].values if manifest.profiles else {}
    for tensor, array in zip(manifest.inputs, arrays, strict=True) if values else ():
        bounds = values.get(tensor.name)
        contents = array.reshape(-1).tolist() if bounds is not None else []
        if bounds is not None and not _allows(bounds, contents):
            raise InputError(
                f"the values {contents} are outside profile {profile}",
                where=f"input '{tensor.name}'",
                expected=f"{list(bounds[0])} to {list(bounds[2])}",
                fix="build with a profile that covers them, or use another profile",
            )


def find_profile(manifest: Manifest, arrays: Sequence[Array]) -> int:
    """The first profile that allows all inputs; 0 when none does, whose limits the error then shows."""
    for index, profile in enumerate(manifest.profiles):
        if all(_fits(profile, tensor.name, array) for tensor, array in zip(manifest.inputs, arrays, strict=True)):
            return index
    return 0


def _fits(profile: ProfileRecord, name: str, array: Array) -> bool:
    bounds, values = profile.shapes.get(name), profile.values.get(name)
    if bounds is not None and not _allows(bounds, array.shape):
        return False
    return values is None or _allows(values, array.reshape(-1).tolist())


def _allows(bounds: _Bounds, shape: Sequence[int]) -> bool:
    low, _, high = bounds
    return len(shape) == len(low) and all(a <= n <= b for a, n, b in zip(low, shape, high, strict=True))
