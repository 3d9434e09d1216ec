"""What a model is run on when nobody brings arrays: random numbers of the right types, sizes that fit together.

Numbers are from -1 to 1. Integers are 0 and 1, because they are often indices, which are then in range of nearly
everything; inputs whose contents decide shapes are not left to chance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from dovetail._unset_dims import UnsetDim, shapes_option
from dovetail.errors import InputError
from dovetail.expr import Dim, constant_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.plan.manifest import Manifest, TensorRecord

__all__ = ["InputSpec", "find_unset", "make_feeds", "specs_of_manifest", "specs_of_model"]

Array = npt.NDArray[Any]

_WORDS: Final = ("", "a", "b", "dovetail", "tenon", "mortise")
_SEQUENCE_LENGTH: Final = 2
_MOST_ELEMENTS: Final = 1 << 28
"""A model may ask for any size, and random numbers for that would take all memory and minutes."""
_MADE_UP: Final = 1
"""The size of a dimension, and the contents of a shape input, that nobody set."""


@dataclass(frozen=True, kw_only=True)
class InputSpec:
    """What must be known of an input to make something up for it."""

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


def make_feeds(
    specs: Iterable[InputSpec],
    *,
    given: Mapping[str, Any] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """One value for each input, in order; the same seed gives the same values.

    A dimension takes the size that a given array or shape has for the same name, else the tuned one, else 1, of which
    ``find_unset`` tells.

    Args:
        specs: The inputs.
        given: Values that are there already.
        shapes: Shapes by name, for the others.
        seed: Decides the random numbers.

    >>> from dovetail.expr import Constant
    >>> feeds = make_feeds([InputSpec(name="x", dtype="float32", dims=[None, Constant(2)])], shapes={"x": (3, 2)})
    >>> feeds["x"].shape
    (3, 2)
    """
    specs, given, shapes = list(specs), given or {}, shapes or {}
    sizes = _learn_sizes(specs, given, shapes)
    rng = np.random.default_rng(seed)
    feeds: dict[str, Any] = {}
    for spec in specs:
        shape = tuple(shapes[spec.name]) if spec.name in shapes else sizes.shape_of(spec)
        feeds[spec.name] = given[spec.name] if spec.name in given else _make_value(spec, shape, rng)
    return feeds


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
    sizes = _learn_sizes(specs, given, shapes)
    unset: list[UnsetDim] = []
    for spec in specs:
        if spec.name not in given:
            told = {dim.name for dim in unset if dim.name is not None}
            unset += [] if spec.name in shapes else [d for d in _unset_dims(spec, sizes) if d.name not in told]
            unset += _unset_contents(spec)
    return unset


def _unset_dims(spec: InputSpec, sizes: _SymbolSizes) -> list[UnsetDim]:
    option = shapes_option(spec.name, sizes.shape_of(spec))
    if spec.dims is None:
        is_shapeless = "map(" in spec.type
        return [] if is_shapeless else [UnsetDim(input=spec.name, axis=None, name=None, size=1, set_with=option)]
    found: dict[str | int, UnsetDim] = {}
    for axis, dim in enumerate(spec.dims):
        if sizes.is_unset(dim, spec.tuned):
            name = _name_of(dim)
            name = None if name is not None and name.startswith("_") else name  # such names are ours
            unset = UnsetDim(input=spec.name, axis=axis, name=name, size=_MADE_UP, set_with=option)
            found.setdefault(name or axis, unset)
    return list(found.values())


def _unset_contents(spec: InputSpec) -> list[UnsetDim]:
    if not spec.is_shape or spec.contents is not None:
        return []
    option = f"--inputs {spec.name}:FILE.npy"
    return [UnsetDim(input=spec.name, axis=None, name=None, size=_MADE_UP, set_with=option)]


def specs_of_manifest(manifest: Manifest) -> list[InputSpec]:
    """The inputs of an engine, with what its first profile is tuned for."""
    profile = manifest.profiles[0] if manifest.profiles else None
    return [_spec_of_record(tensor, profile) for tensor in manifest.inputs]


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


# sizes


def _learn_sizes(
    specs: Sequence[InputSpec], given: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]
) -> _SymbolSizes:
    sizes = _SymbolSizes()
    for spec in specs:
        if spec.name in given and isinstance(given[spec.name], np.ndarray):
            sizes.learn(spec, given[spec.name].shape)
    for spec in specs:
        if spec.name in shapes:
            sizes.learn(spec, shapes[spec.name])
    return sizes


@dataclass
class _SymbolSizes:
    """The sizes of dimensions that have a name."""

    sizes: dict[str, int] = field(default_factory=dict)

    def learn(self, spec: InputSpec, shape: Sequence[int]) -> None:
        if spec.dims is None:
            return
        if len(shape) != len(spec.dims):
            raise InputError(
                "wrong number of dimensions",
                where=f"input '{spec.name}'",
                expected=len(spec.dims),
                got="x".join(map(str, shape)) or "scalar",
            )
        for dim, size in zip(spec.dims, shape, strict=True):
            name = _name_of(dim)
            if name is not None:
                self.sizes.setdefault(name, size)

    def shape_of(self, spec: InputSpec) -> tuple[int, ...]:
        return tuple(
            self._size(dim, None if spec.tuned is None else spec.tuned[axis])
            for axis, dim in enumerate(spec.dims or ())
        )

    def is_unset(self, dim: Dim, tuned: Sequence[int] | None) -> bool:
        return tuned is None and constant_of(dim) is None and _name_of(dim) not in self.sizes

    def _size(self, dim: Dim, tuned: int | None) -> int:
        fixed = constant_of(dim)
        if fixed is not None:
            return fixed
        known = self.sizes.get(_name_of(dim) or "")
        return known if known is not None else _MADE_UP if tuned is None else tuned


def _name_of(dim: Dim) -> str | None:
    """What a dimension that is not fixed is called."""
    return None if dim is None or constant_of(dim) is not None else str(dim)


# values


def _make_value(spec: InputSpec, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """Something of the input's type; an optional is filled, and a sequence has a few elements."""
    if "seq(" in spec.type:
        return [_make_item(spec, shape, rng) for _ in range(_SEQUENCE_LENGTH)]
    return _make_item(spec, shape, rng)


def _make_item(spec: InputSpec, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    return _make_map(spec, rng) if "map(" in spec.type else _make_array(spec, shape, rng)


def _make_map(spec: InputSpec, rng: np.random.Generator) -> dict[Any, Any]:
    """A few entries; which keys a model knows cannot be told, and small numbers are places in most lists."""
    keys: Sequence[Any] = _WORDS if "map(string" in spec.type else range(len(_WORDS))
    return dict(zip(keys, _make_array(spec, (len(keys),), rng).tolist(), strict=True))


def _make_array(spec: InputSpec, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    if math.prod(shape) > _MOST_ELEMENTS:
        raise InputError(
            "nothing of this size is made up",
            where=f"input '{spec.name}'",
            expected=f"at most {_MOST_ELEMENTS} elements",
            got=math.prod(shape),
            fix="give an array (--inputs), or set a smaller shape (--shapes)",
        )
    if spec.dtype == "object":
        return rng.choice(np.array(_WORDS, object), shape)
    dtype = np.dtype(spec.dtype)
    if spec.is_shape:
        return np.full(shape, _MADE_UP if spec.contents is None else np.reshape(spec.contents, shape), dtype)
    if dtype.kind in "iub":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.kind == "c":
        return (rng.uniform(-1.0, 1.0, shape) + 1j * rng.uniform(-1.0, 1.0, shape)).astype(dtype)
    return rng.uniform(-1.0, 1.0, shape).astype(np.float32).astype(dtype)
