"""The sizes of dimensions: those of one name agree, and those that nobody set are found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from dovetail._unset_dims import UnsetDim, shapes_option
from dovetail.errors import InputError
from dovetail.expr import Dim, constant_of
from dovetail.inputs.made_values import MadeValue
from dovetail.inputs.specs import InputSpec

__all__ = ["MADE_UP", "SymbolSizes", "find_unset", "learn_sizes"]

MADE_UP: Final = 1
"""The size of a dimension, and the contents of a shape input, that nobody set."""


@dataclass
class SymbolSizes:
    """The sizes of dimensions that have a name."""

    sizes: dict[str, int] = field(default_factory=dict)

    def learn(self, spec: InputSpec, shape: Sequence[int]) -> None:
        """Take the sizes that an input has.

        Raises:
            InputError: The input has another number of dimensions.
        """
        if spec.dims is None:
            return
        if len(shape) != len(spec.dims):
            raise InputError(
                "wrong number of dimensions",
                where=spec.where,
                expected=len(spec.dims),
                got="x".join(map(str, shape)) or "scalar",
            )
        for dim, size in zip(spec.dims, shape, strict=True):
            name = _name_of(dim)
            if name is not None:
                self.sizes.setdefault(name, size)

    def shape_of(self, spec: InputSpec) -> tuple[int, ...]:
        """The shape of an input, with what is made up for sizes that nobody set."""
        return tuple(MADE_UP if size is None else size for size in self.known_dims(spec))

    def known_dims(self, spec: InputSpec) -> list[int | None]:
        """The size of each dimension, None where nobody set it; nothing where the rank is unknown."""
        return [
            self._size(dim, None if spec.tuned is None else spec.tuned[axis])
            for axis, dim in enumerate(spec.dims or ())
        ]

    def is_unset(self, dim: Dim, tuned: Sequence[int] | None) -> bool:
        """Whether nobody set the size of a dimension."""
        return tuned is None and constant_of(dim) is None and _name_of(dim) not in self.sizes

    def _size(self, dim: Dim, tuned: int | None) -> int | None:
        fixed = constant_of(dim)
        if fixed is not None:
            return fixed
        return self.sizes.get(_name_of(dim) or "", tuned)


def learn_sizes(
    specs: Sequence[InputSpec], given: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]
) -> SymbolSizes:
    """The sizes that given arrays have, and then those of shapes."""
    sizes = SymbolSizes()
    for spec in specs:
        if isinstance(given.get(spec.name), np.ndarray):
            sizes.learn(spec, given[spec.name].shape)
    for spec in specs:
        if spec.name in shapes:
            sizes.learn(spec, shapes[spec.name])
    return sizes


def find_unset(
    specs: Iterable[InputSpec],
    *,
    given: Mapping[str, Any] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> list[UnsetDim]:
    """The sizes that ``make_feeds`` has to make up, as no array, shape or profile decides them; each name once.

    >>> from dovetail.expr import Constant, Symbol
    >>> n = Symbol("n")
    >>> [dim.name for dim in find_unset([InputSpec(name="x", dtype="float32", dims=[n, Constant(2), n])])]
    ['n']
    """
    specs, given, shapes = list(specs), given or {}, shapes or {}
    sizes = learn_sizes(specs, given, shapes)
    unset: list[UnsetDim] = []
    for spec in specs:
        has_contents = spec.name in given
        if has_contents and not isinstance(given[spec.name], MadeValue):
            continue
        told = {dim.name for dim in unset if dim.name is not None}
        unset += [] if spec.name in shapes else [d for d in _unset_dims(spec, sizes) if d.name not in told]
        unset += [] if has_contents else _unset_contents(spec)
    return unset


def _unset_dims(spec: InputSpec, sizes: SymbolSizes) -> list[UnsetDim]:
    option = shapes_option(spec.name, sizes.shape_of(spec))
    if spec.dims is None:
        is_shapeless = "map(" in spec.type
        return [] if is_shapeless else [UnsetDim(input=spec.name, axis=None, name=None, size=1, set_with=option)]
    found: dict[str | int, UnsetDim] = {}
    for axis, dim in enumerate(spec.dims):
        if sizes.is_unset(dim, spec.tuned):
            name = _name_of(dim)
            name = None if name is not None and name.startswith("_") else name  # such names are ours
            unset = UnsetDim(input=spec.name, axis=axis, name=name, size=MADE_UP, set_with=option)
            found.setdefault(name or axis, unset)
    return list(found.values())


def _unset_contents(spec: InputSpec) -> list[UnsetDim]:
    if not spec.is_shape or spec.contents is not None:
        return []
    option = f"--inputs {spec.name}:FILE.npy"
    return [UnsetDim(input=spec.name, axis=None, name=None, size=MADE_UP, set_with=option)]


def _name_of(dim: Dim) -> str | None:
    """What a dimension that is not fixed is called."""
    return None if dim is None or constant_of(dim) is not None else str(dim)
