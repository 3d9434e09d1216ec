"""What a model is run on when nobody brings arrays: random numbers of the right types, sizes that fit together.

Numbers are from -1 to 1. Integers are 0 and 1, because they are often indices, which are then in range of nearly
everything; inputs whose contents decide shapes are not left to chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from dovetail.errors import InputError
from dovetail.inputs.made_values import MadeValue, require_modest
from dovetail.inputs.sizes import MADE_UP, find_unset, learn_sizes
from dovetail.inputs.specs import InputSpec, specs_of_manifest

if TYPE_CHECKING:
    from dovetail.plan.manifest import Manifest

__all__ = ["make_benchmark_inputs", "make_feeds"]

Array = npt.NDArray[Any]

_WORDS: Final = ("", "a", "b", "dovetail", "tenon", "mortise")
_SEQUENCE_LENGTH: Final = 2


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
        given: Values that are there already, and ``MadeValue`` objects for what is made when the shape is known.
        shapes: Shapes by name, for the others.
        seed: Decides the random numbers.

    >>> from dovetail.expr import Constant
    >>> feeds = make_feeds([InputSpec(name="x", dtype="float32", dims=[None, Constant(2)])], shapes={"x": (3, 2)})
    >>> feeds["x"].shape
    (3, 2)
    """
    specs, given, shapes = list(specs), given or {}, shapes or {}
    sizes = learn_sizes(specs, given, shapes)
    rng = np.random.default_rng(seed)
    feeds: dict[str, Any] = {}
    for spec in specs:
        shape = tuple(shapes[spec.name]) if spec.name in shapes else sizes.shape_of(spec)
        value = given.get(spec.name)
        if isinstance(value, MadeValue):
            feeds[spec.name] = value.make(spec, shape, rng)
        else:
            feeds[spec.name] = value if spec.name in given else _make_value(spec, shape, rng)
    return feeds


def make_benchmark_inputs(manifest: Manifest) -> list[Any]:
    """A value for every input of an engine, in its fixed shape or that which its first profile is tuned for.

    Raises:
        InputError: A size or a content that shapes depend on is the caller's to choose.
    """
    specs = specs_of_manifest(manifest)
    unset = find_unset(specs)
    if unset:
        raise InputError(
            "nothing can be made up for it",
            where=f"input '{unset[0].input}'",
            expected="a known shape",
            got="a shape that depends on the caller",
            fix="pass arrays: engine.benchmark(x)",
        )
    return list(make_feeds(specs).values())


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
    require_modest(spec, shape)
    if spec.dtype == "object":
        return rng.choice(np.array(_WORDS, object), shape)
    dtype = np.dtype(spec.dtype)
    if spec.is_shape:
        return np.full(shape, MADE_UP if spec.contents is None else np.reshape(spec.contents, shape), dtype)
    if dtype.kind in "iub":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.kind == "c":
        return (rng.uniform(-1.0, 1.0, shape) + 1j * rng.uniform(-1.0, 1.0, shape)).astype(dtype)
    return rng.uniform(-1.0, 1.0, shape).astype(np.float32).astype(dtype)
