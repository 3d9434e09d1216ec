"""Preparing features for the models of ai.onnx.ml: choosing, joining, scaling, filling in and encoding columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels._checks import fail, require, wrap_indices
from dovetail.providers.cpu.kernels._classes import ML, NUMERIC
from dovetail.providers.cpu.kernels._support import STRING, reference
from dovetail.providers.cpu.registry import kernel

__all__ = [
    "array_feature_extractor",
    "binarizer",
    "feature_vectorizer",
    "imputer",
    "normalizer",
    "one_hot_encoder",
    "scaler",
]


@kernel("ArrayFeatureExtractor", since=1, domain=ML, types={"T": NUMERIC + STRING})
@reference
def array_feature_extractor(x: Array, indices: Array) -> Array:
    """The columns at these indices; a vector counts as one row, and so does its result."""
    op = "ArrayFeatureExtractor"
    require(x.ndim > 0 and indices.size > 0, op, "a scalar has no features, and no index selects none")
    columns = wrap_indices(op, indices.reshape(-1), x.shape[-1], lowest=0)
    chosen = np.take(x, columns, axis=-1)
    return chosen.reshape(1, -1) if x.ndim == 1 else chosen


@kernel("Binarizer", since=1, domain=ML, types={"T": NUMERIC})
@reference
def binarizer(x: Array, *, threshold: float = 0.0) -> Array:
    """One where an element exceeds the threshold, zero elsewhere."""
    return np.asarray(x > threshold).astype(x.dtype)


@kernel("FeatureVectorizer", since=1, domain=ML, types={"T1": NUMERIC})
@reference
def feature_vectorizer(*inputs: Array, inputdimensions: Sequence[int] | None = None) -> Array:
    """All inputs side by side as floats, each cut or filled up with zeros to its width."""
    op = "FeatureVectorizer"
    require(all(x.ndim in (1, 2) for x in inputs), op, "inputs must be [N, C] or [C]", got=[x.shape for x in inputs])
    parts = [x.reshape(-1, x.shape[-1]) for x in inputs]
    widths = [part.shape[1] for part in parts] if not inputdimensions else list(inputdimensions)
    require(len(widths) == len(parts), op, "'inputdimensions' and inputs differ", expected=len(parts), got=len(widths))
    require(min(widths) >= 0, op, "'inputdimensions' must not be negative", got=widths)
    rows = {part.shape[0] for part in parts}
    require(len(rows) == 1, op, "inputs differ in rows", got=[part.shape for part in parts])
    y = np.zeros((rows.pop(), sum(widths)), dtype=np.float32)
    start = 0
    for part, width in zip(parts, widths, strict=True):
        kept = min(width, part.shape[1])
        y[:, start : start + kept] = part[:, :kept]
        start += width
    return y


@kernel("Imputer", since=1, domain=ML, types={"T": NUMERIC})
@reference
def imputer(
    x: Array,
    *,
    imputed_value_floats: Sequence[float] | None = None,
    imputed_value_int64s: Sequence[int] | None = None,
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Array:
    """Replace one value, which may be NaN, by another, or by one a feature."""
    op = "Imputer"
    is_float = x.dtype.kind == "f"
    values = np.array((imputed_value_floats if is_float else imputed_value_int64s) or (), dtype=x.dtype)
    require(x.ndim > 0, op, "a scalar has no features")
    fits = values.size in (1, x.shape[-1])
    require(fits, op, "the imputed values have the wrong length", expected=f"1 or {x.shape[-1]}", got=values.size)
    replaced = replaced_value_float if is_float else replaced_value_int64
    missing = np.isnan(x) if is_float and np.isnan(replaced) else x == replaced
    return np.where(missing, values, x)


@kernel("Normalizer", since=1, domain=ML, types={"T": NUMERIC})
@reference
def normalizer(x: Array, *, norm: str = "MAX") -> Array:
    """Divide each row by its largest element, its sum of magnitudes or its length, unless that is zero."""
    op = "Normalizer"
    require(x.ndim in (1, 2), op, "the input must be [N, C] or [C]", got=x.shape)
    wide = x.astype(np.float64)
    if norm == "MAX":
        divisor = wide.max(axis=-1, keepdims=True, initial=-np.inf)
    elif norm == "L1":
        divisor = np.abs(wide).sum(axis=-1, keepdims=True)
    elif norm == "L2":
        divisor = np.sqrt(np.square(wide).sum(axis=-1, keepdims=True))
    else:
        fail(op, "'norm' is unknown", expected="MAX, L1 or L2", got=norm)
    return (wide / np.where(divisor == 0, 1, divisor)).astype(np.float32)


@kernel("OneHotEncoder", since=1, domain=ML, types={"T": NUMERIC + STRING})
@reference
def one_hot_encoder(
    x: Array, *, cats_int64s: Sequence[int] | None = None, cats_strings: Sequence[str] | None = None, zeros: int = 1
) -> Array:
    """Mark each element's category on a new last axis; an unknown one marks nothing, or fails without ``zeros``."""
    op = "OneHotEncoder"
    require(bool(cats_int64s) != bool(cats_strings), op, "exactly one list of categories must be given")
    categories = np.array(cats_int64s or cats_strings, dtype=np.int64 if cats_int64s else object)
    require((x.dtype == object) == bool(cats_strings), op, "the categories are of another type", got=x.dtype)
    values = x if x.dtype == object else x.astype(np.int64)
    marks = np.asarray(values[..., None] == categories).astype(bool)
    known = bool(marks.any(axis=-1).all())
    require(bool(zeros) or known, op, "an element is of no known category", expected=categories.tolist())
    return marks.astype(np.float32)


@kernel("Scaler", since=1, domain=ML, types={"T": NUMERIC})
@reference
def scaler(x: Array, *, offset: Sequence[float] | None = None, scale: Sequence[float] | None = None) -> Array:
    """Subtract an offset and multiply by a scale, the same for all features or one each."""
    op = "Scaler"
    require(x.ndim > 0, op, "a scalar has no features")
    shift, factor = (np.array(values or (default,)) for values, default in ((offset, 0.0), (scale, 1.0)))
    for name, values in (("offset", shift), ("scale", factor)):
        fits = values.size in (1, x.shape[-1])
        require(fits, op, f"'{name}' has the wrong length", expected=f"1 or {x.shape[-1]}", got=values.size)
    return np.asarray((x.astype(np.float64) - shift) * factor, dtype=np.float32)
