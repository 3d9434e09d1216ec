"""Looking values up in ai.onnx.ml: label encoders, category maps, and the maps themselves, which are dicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail.provider.schemas.typed_maps import TypedMap
from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels._checks import fail, require, require_room
from dovetail.providers.cpu.kernels._classes import ML
from dovetail.providers.cpu.kernels._support import STRING, reference
from dovetail.providers.cpu.registry import kernel

__all__ = [
    "cast_map",
    "category_mapper",
    "dict_vectorizer",
    "label_encoder",
    "label_encoder_1",
    "label_encoder_2",
    "zip_map",
]

_NAN = object()
"""What stands for NaN as a key: NaN equals nothing, yet every NaN finds the entry of NaN."""


def _key(value: Any) -> Any:
    return _NAN if value != value else value  # only NaN differs from itself


def _look_up(x: Array, keys: Sequence[Any], values: Array, default: Any) -> Array:
    """The value of each element's key, the default where there is none; of equal keys the last one counts."""
    table = {_key(key): value for key, value in zip(keys, values.tolist(), strict=True)}
    found, places = np.unique(x, return_inverse=True)
    mapped = np.empty(found.size, dtype=values.dtype)
    mapped[:] = [table.get(_key(key), default) for key in found.tolist()]
    return mapped[places.reshape(x.shape)]


@kernel("LabelEncoder", since=1, until=1, domain=ML, types={"T1": (*STRING, "int64")})
@reference
def label_encoder_1(
    x: Array,
    *,
    classes_strings: Sequence[str] | None = None,
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Array:
    """Strings to their places in a list, or places to strings."""
    words, places = list(classes_strings or ()), np.arange(len(classes_strings or ()))
    return _convert(x, words, places, default_int64, default_string)


@kernel("CategoryMapper", since=1, domain=ML, types={"T1": (*STRING, "int64")})
@reference
def category_mapper(
    x: Array,
    *,
    cats_int64s: Sequence[int] | None = None,
    cats_strings: Sequence[str] | None = None,
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Array:
    """Strings to the integers beside them, or integers to strings."""
    words, numbers = list(cats_strings or ()), np.array(cats_int64s or (), dtype=np.int64)
    fits = len(words) == numbers.size
    require(fits, "CategoryMapper", "the two lists differ in length", expected=numbers.size, got=len(words))
    return _convert(x, words, numbers, default_int64, default_string)


def _convert(x: Array, words: list[str], numbers: Array, default_int64: int, default_string: str) -> Array:
    if x.dtype == object:
        return _look_up(x, words, numbers.astype(np.int64), default_int64)
    return _look_up(x, numbers.tolist(), np.array(words, dtype=object), default_string)


@kernel("LabelEncoder", since=2, until=3, domain=ML, types={"T1": (*STRING, "int64", "float32")})
@reference
def label_encoder_2(
    x: Array,
    *,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    keys_floats: Sequence[float] | None = None,
    keys_int64s: Sequence[int] | None = None,
    keys_strings: Sequence[str] | None = None,
    values_floats: Sequence[float] | None = None,
    values_int64s: Sequence[int] | None = None,
    values_strings: Sequence[str] | None = None,
) -> Array:
    """Each element's value in a table given by two lists."""
    y: Array = label_encoder(
        x,
        default_float=default_float,
        default_int64=default_int64,
        default_string=default_string,
        keys_floats=keys_floats,
        keys_int64s=keys_int64s,
        keys_strings=keys_strings,
        values_floats=values_floats,
        values_int64s=values_int64s,
        values_strings=values_strings,
    )
    return y


@kernel("LabelEncoder", since=4, domain=ML, types={"T1": (*STRING, "int16", "int32", "int64", "float32", "float64")})
@reference
def label_encoder(
    x: Array,
    *,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    default_tensor: Array | None = None,
    keys_floats: Sequence[float] | None = None,
    keys_int64s: Sequence[int] | None = None,
    keys_strings: Sequence[str] | None = None,
    keys_tensor: Array | None = None,
    values_floats: Sequence[float] | None = None,
    values_int64s: Sequence[int] | None = None,
    values_strings: Sequence[str] | None = None,
    values_tensor: Array | None = None,
) -> Array:
    """Each element's value in a table given by two lists or two tensors."""
    op = "LabelEncoder"
    keys = _only(op, "keys", keys_floats, keys_int64s, keys_strings, keys_tensor, dtype=x.dtype)
    values: Array
    default: Any
    if values_tensor is not None:
        values, default = values_tensor.reshape(-1), _unused(values_tensor.dtype)
    elif values_strings is not None:
        values, default = np.array(values_strings, dtype=object), default_string
    elif values_int64s is not None:
        values, default = np.array(values_int64s, dtype=np.int64), default_int64
    else:
        values, default = np.array(values_floats or (), dtype=np.float32), default_float
    if default_tensor is not None:
        require(default_tensor.size == 1, op, "'default_tensor' must hold one element", got=default_tensor.size)
        default = default_tensor.reshape(-1).tolist()[0]
    require(keys.size == values.size, op, "keys and values differ in length", expected=keys.size, got=values.size)
    return _look_up(x, keys.tolist(), values, default)


def _only(op: str, name: str, *lists: Any, dtype: np.dtype[Any]) -> Array:
    """The one list that is given, in the type of what is looked up, so that equal elements are equal keys."""
    given = [entries for entries in lists if entries is not None]
    require(len(given) == 1, op, f"exactly one list of {name} must be given", expected=1, got=len(given))
    is_text = dtype.kind == "O"
    entries = np.asarray(given[0], dtype=object if is_text else None).reshape(-1)
    fits = all(isinstance(entry, str) for entry in entries) if is_text else entries.dtype.kind in "if"
    require(fits, op, f"the {name} are of another type than the input", expected=dtype, got=entries.dtype)
    return entries.astype(dtype)


def _unused(dtype: np.dtype[Any]) -> Any:
    return "_Unused" if dtype.kind == "O" else -1 if dtype.kind == "i" else -0.0


@kernel(
    "ZipMap",
    since=1,
    domain=ML,
    types={"T": ("seq(map(int64,tensor(float)))", "seq(map(string,tensor(float)))")},
)
def zip_map(
    x: Array, *, classlabels_int64s: Sequence[int] | None = None, classlabels_strings: Sequence[str] | None = None
) -> tuple[list[dict[Any, float]]]:
    """A sequence of maps from class label to score, one a row; labels come in order, as in ONNX Runtime's maps."""
    op = "ZipMap"
    require(bool(classlabels_int64s) != bool(classlabels_strings), op, "exactly one list of labels must be given")
    labels: Sequence[Any] = classlabels_int64s or classlabels_strings or ()
    require(x.ndim in (1, 2), op, "the input must be [N, C] or [C]", got=x.shape)
    require(x.shape[-1] == len(labels), op, "labels and columns differ", expected=x.shape[-1], got=len(labels))
    order = sorted(range(len(labels)), key=lambda place: labels[place])
    keys = [labels[place] for place in order]
    rows = x.reshape(-1, len(labels)).astype(np.float32)[:, order]
    return ([dict(zip(keys, row, strict=True)) for row in rows.tolist()],)


@kernel(
    "DictVectorizer",
    since=1,
    domain=ML,
    types={
        "T1": (
            *(f"map({key},tensor({element}))" for key in ("int64", "string") for element in ("float", "double")),
            "map(int64,tensor(string))",
            "map(string,tensor(int64))",
        )
    },
)
def dict_vectorizer(
    entries: TypedMap,
    *,
    int64_vocabulary: Sequence[int] | None = None,
    string_vocabulary: Sequence[str] | None = None,
) -> Array:
    """A row with the value of each word of the vocabulary, zero for those that the map lacks.

    The text of the operator calls it a vector; ONNX Runtime, and the models that feed it to others, have one row. Keys
    that are not in the vocabulary are left out, as ONNX Runtime does.
    """
    op = "DictVectorizer"
    _require_map(op, entries)
    require(bool(int64_vocabulary) != bool(string_vocabulary), op, "exactly one vocabulary must be given")
    words = int64_vocabulary or string_vocabulary or ()
    zero: Any = "" if entries.dtype == object else 0
    y = np.empty((1, len(words)), dtype=entries.dtype)
    y[0] = [entries.get(word, zero) for word in words]
    return y


@kernel("CastMap", since=1, domain=ML, types={"T1": ("map(int64,tensor(float))", "map(int64,tensor(string))")})
def cast_map(entries: TypedMap, *, cast_to: str = "TO_FLOAT", map_form: str = "DENSE", max_map: int = 1) -> Array:
    """The values of a map in the order of its keys: packed, or each at the place that its key names.

    Places that no key names hold what ONNX Runtime has there, and keys beyond the last place are left out, as it does.
    """
    op = "CastMap"
    _require_map(op, entries)
    casts: dict[str, tuple[Any, Any]] = {"TO_FLOAT": (np.float32, 0), "TO_STRING": (object, "0.f")}
    casts["TO_INT64"] = (np.int64, 0)
    if cast_to not in casts:
        fail(op, "'cast_to' is unknown", expected=", ".join(casts), got=cast_to)
    require(map_form in ("DENSE", "SPARSE"), op, "'map_form' is unknown", expected="DENSE or SPARSE", got=map_form)
    dtype, padding = casts[cast_to]
    keys = sorted(entries)
    if map_form == "DENSE":
        places, width = list(range(len(keys))), len(keys)
    else:
        require(not keys or keys[0] >= 0, op, "a key is negative", got=keys[:1])
        require(max_map > 0, op, "'max_map' must be positive", got=max_map)
        keys, width = [key for key in keys if key < max_map], max_map
        places = keys
    require_room(op, (1, width), np.dtype(dtype))
    y = np.full((1, width), padding, dtype=dtype)
    y[0, places] = [_cast(op, entries[key], cast_to) for key in keys]
    return y


def _require_map(op: str, entries: Any) -> None:
    require(isinstance(entries, TypedMap), op, "the input must be a map", got=type(entries).__name__)


def _cast(op: str, value: Any, cast_to: str) -> Any:
    if cast_to == "TO_STRING":
        return value if isinstance(value, str) else f"{value:f}"
    try:
        return _truncate(value) if cast_to == "TO_INT64" else float(value)
    except (ValueError, OverflowError):
        fail(op, "a value is not a number", got=value)


def _truncate(value: float | str) -> int:
    """A number without its fraction; text is read as an integer where it is one, which a float may not hold."""
    try:
        return int(value)
    except ValueError:
        return int(float(value))
