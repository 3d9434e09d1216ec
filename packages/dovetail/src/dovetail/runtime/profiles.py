"""Checking that an input fits the engine and the profile in use."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.errors import InputError
from dovetail.plan.manifest import Manifest, TensorRecord

__all__ = ["check_profile", "find_profile"]


def check_profile(manifest: Manifest, profile: int, tensor: TensorRecord, shape: Sequence[int]) -> None:
    """Raise an error that shows what the engine allows, unless the shape is allowed."""
    if len(shape) != len(tensor.dims) or any(
        isinstance(d, int) and d != n for d, n in zip(tensor.dims, shape, strict=False)
    ):
        raise InputError(
            "wrong shape",
            where=f"input '{tensor.name}'",
            expected=f"({', '.join(str(d) for d in tensor.dims)})",
            got=tuple(shape),
        )
    if min(shape, default=0) < 0:
        raise InputError("a dimension is negative", where=f"input '{tensor.name}'", got=tuple(shape))
    bounds = manifest.profiles[profile].shapes.get(tensor.name) if manifest.profiles else None
    if bounds is not None and any(
        not low <= n <= high for low, n, high in zip(bounds[0], shape, bounds[2], strict=True)
    ):
        allowed = ", ".join(str(lo) if lo == hi else f"{lo}..{hi}" for lo, hi in zip(bounds[0], bounds[2], strict=True))
        ranges = "x".join(str(n) for n in shape)
        raise InputError(
            f"shape {tuple(shape)} is outside profile {profile}, which allows ({allowed})",
            where=f"input '{tensor.name}'",
            fix=f"build with a profile that covers it (--shapes {tensor.name}:...:{ranges}), or use another profile",
        )


def find_profile(manifest: Manifest, shapes: Sequence[Sequence[int]]) -> int:
    """The first profile that allows the shapes of all inputs; 0 when none does, whose limits the error then shows."""
    for index, profile in enumerate(manifest.profiles):
        bounds = [profile.shapes.get(tensor.name) for tensor in manifest.inputs]
        if all(bound is None or _allows(bound, shape) for bound, shape in zip(bounds, shapes, strict=True)):
            return index
    return 0


def _allows(bounds: tuple[list[int], list[int], list[int]], shape: Sequence[int]) -> bool:
    low, _, high = bounds
    return len(shape) == len(low) and all(a <= n <= b for a, n, b in zip(low, shape, high, strict=True))
