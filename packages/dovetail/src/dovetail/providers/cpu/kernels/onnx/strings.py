"""The ops of string tensors, which are arrays of str, and TfIdfVectorizer, which counts n-grams of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels._checks import fail, require, require_room
from dovetail.providers.cpu.kernels._patterns import compile_pattern
from dovetail.providers.cpu.kernels._support import STRING
from dovetail.providers.cpu.registry import kernel

__all__ = ["regex_full_match", "string_concat", "string_normalizer", "string_split", "tfidf_vectorizer"]


@kernel("StringConcat", since=20, types={"T": STRING})
def string_concat(x: Array, y: Array) -> Array:
    """Join strings element by element, broadcasting."""
    return np.asarray(np.add(x, y), dtype=object)


@kernel("StringSplit", since=20, types={"T1": STRING})
def string_split(x: Array, *, delimiter: str | None = None, maxsplit: int | None = None) -> tuple[Array, Array]:
    """Cut each string into pieces on a new last axis, filled up with empty strings, and count them."""
    limit = -1 if maxsplit is None else maxsplit
    pieces = [text.split(delimiter or None, limit) for text in x.reshape(-1)]
    counts = np.array([len(parts) for parts in pieces], dtype=np.int64)
    y = np.full((x.size, int(counts.max(initial=0))), "", dtype=object)
    for row, parts in zip(y, pieces, strict=True):
        row[: len(parts)] = parts
    return y.reshape(*x.shape, y.shape[1]), counts.reshape(x.shape)


@kernel("StringNormalizer", since=10)
def string_normalizer(
    x: Array,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str | None = None,
    stopwords: Sequence[str] | None = None,
) -> Array:
    """Drop stop words and change case; case is Unicode's own, whatever ``locale`` says."""
    op = "StringNormalizer"
    del locale
    changes: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}
    change = changes.get(case_change_action)
    if change is None:
        fail(op, "'case_change_action' is unknown", expected="NONE, LOWER or UPPER", got=case_change_action)
    require(x.ndim == 1 or (x.ndim == 2 and x.shape[0] == 1), op, "the input must be [C] or [1, C]", got=x.shape)
    fold = str if is_case_sensitive else str.lower
    stops = {fold(word) for word in stopwords or ()}
    kept = [change(text) for text in x.reshape(-1) if fold(text) not in stops]
    # ONNX has no empty result: when every word is dropped, one empty string is left.
    return np.array(kept or [""], dtype=object).reshape(*x.shape[:-1], -1)


@kernel("RegexFullMatch", since=20, types={"T1": STRING})
def regex_full_match(x: Array, *, pattern: str = "") -> Array:
    """Whether each string as a whole matches the pattern."""
    matcher = compile_pattern("RegexFullMatch", pattern)
    found = [matcher.fullmatch(text) is not None for text in x.reshape(-1)]
    return np.array(found, dtype=bool).reshape(x.shape)


@kernel("TfIdfVectorizer", since=9, types={"T": ("object", "int32", "int64")})
def tfidf_vectorizer(
    x: Array,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: Sequence[int],
    ngram_indexes: Sequence[int],
    pool_int64s: Sequence[int] | None = None,
    pool_strings: Sequence[str] | None = None,
    weights: Sequence[float] | None = None,
) -> Array:
    """Count the known n-grams of each row, with gaps up to ``max_skip_count``, and weigh the counts."""
    op = "TfIdfVectorizer"
    require(x.ndim in (1, 2), op, "the input must have one or two axes", got=x.shape)
    require(mode in ("TF", "IDF", "TFIDF"), op, "'mode' is unknown", expected="TF, IDF or TFIDF", got=mode)
    pool = tuple(pool_strings or pool_int64s or ())
    columns = _map_grams(op, pool, ngram_counts, ngram_indexes)
    width = max(ngram_indexes, default=-1) + 1
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    require_room(op, (rows.shape[0], width), np.dtype(np.float32))
    y = np.zeros((rows.shape[0], width), dtype=np.float32)
    for counts, row in zip(y, rows.tolist(), strict=True):
        for gram in _list_grams(row, min_gram_length, max_gram_length, max_skip_count):
            if gram in columns:
                counts[columns[gram]] += 1
    return _weigh(op, y, mode, ngram_indexes, weights).reshape(*x.shape[:-1], width)


def _map_grams(
    op: str, pool: tuple[Any, ...], ngram_counts: Sequence[int], ngram_indexes: Sequence[int]
) -> dict[tuple[Any, ...], int]:
    """Each n-gram of the pool with its output column; sizes follow each other from one on."""
    grams: list[tuple[Any, ...]] = []
    bounds = [*ngram_counts, len(pool)]
    is_rising = bounds[0] >= 0 and all(start <= end for start, end in itertools.pairwise(bounds))
    require(is_rising, op, "'ngram_counts' must be places in the pool, one after the other", got=list(ngram_counts))
    for size, (start, end) in enumerate(itertools.pairwise(bounds), start=1):
        grams.extend(pool[i : i + size] for i in range(start, end, size))
    require(
        len(grams) == len(ngram_indexes), op, "pool and indexes differ", expected=len(ngram_indexes), got=len(grams)
    )
    require(min(ngram_indexes, default=0) >= 0, op, "'ngram_indexes' must not be negative", got=min(ngram_indexes))
    return dict(zip(grams, ngram_indexes, strict=True))


def _list_grams(row: list[Any], shortest: int, longest: int, max_skip: int) -> Iterator[tuple[Any, ...]]:
    for size in range(shortest, min(longest, len(row)) + 1):
        # A single token has no gap, so it is counted once and not once a skip.
        for gap in range(1, (min(max_skip, len(row)) if size > 1 else 0) + 2):
            for start in range(len(row) - (size - 1) * gap):
                yield tuple(row[start : start + (size - 1) * gap + 1 : gap])


def _weigh(op: str, counts: Array, mode: str, ngram_indexes: Sequence[int], weights: Sequence[float] | None) -> Array:
    if mode == "TF":
        return counts
    factors = np.ones(counts.shape[1], dtype=np.float32)
    if weights is not None:
        fits = len(weights) == len(ngram_indexes)
        require(fits, op, "'weights' has the wrong length", expected=len(ngram_indexes), got=len(weights))
        factors[list(ngram_indexes)] = weights
    return (np.minimum(counts, 1) if mode == "IDF" else counts) * factors
