"""String tensors: empty ones, padding, stop words and n-grams."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import pytest

from dovetail.errors import InputError, ResourceError
from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels.onnx.strings import (
    regex_full_match,
    string_concat,
    string_normalizer,
    string_split,
    tfidf_vectorizer,
)


def _words(*values: Any) -> Array:
    return np.array(values, dtype=object)


def test_concat_broadcasts_and_keeps_scalars() -> None:
    assert string_concat(_words("a", "b"), np.array("!", dtype=object)).tolist() == ["a!", "b!"]
    y = string_concat(np.array("a", dtype=object), np.array("b", dtype=object))
    assert isinstance(y, np.ndarray)
    assert (y.shape, y.item()) == ((), "ab")


def test_split_fills_up_with_empty_strings() -> None:
    parts, counts = string_split(_words("a,b", "c", ""), delimiter=",")
    assert parts.tolist() == [["a", "b"], ["c", ""], ["", ""]]
    assert counts.tolist() == [2, 1, 1]
    parts, counts = string_split(_words("  x  y z"), maxsplit=1)
    assert parts.tolist() == [["x", "y z"]]
    parts, counts = string_split(np.zeros((0, 2), dtype=object))
    assert (parts.shape, counts.shape, counts.dtype) == ((0, 2, 0), (0, 2), np.int64)


def test_stop_words_with_and_without_case() -> None:
    x = _words("A", "b", "C")
    assert string_normalizer(x, stopwords=["a"], case_change_action="LOWER").tolist() == ["b", "c"]
    kept = string_normalizer(x, stopwords=["a"], is_case_sensitive=1, case_change_action="UPPER")
    assert kept.tolist() == ["A", "B", "C"]
    assert string_normalizer(x[None], stopwords=["a", "b", "c"]).tolist() == [[""]]
    assert string_normalizer(_words("é")).tolist() == ["é"]
    with pytest.raises(InputError, match=r"the input must be \[C\] or \[1, C\]"):
        string_normalizer(np.full((2, 2), "", dtype=object))
    with pytest.raises(InputError, match="'case_change_action' is unknown"):
        string_normalizer(x, case_change_action="TITLE")


def test_regex_matches_whole_strings() -> None:
    assert regex_full_match(_words("abc", "ab"), pattern="a.c?").tolist() == [True, True]
    assert regex_full_match(_words("xabc"), pattern="abc").tolist() == [False]
    with pytest.raises(InputError, match="op RegexFullMatch: RE2 does not take the expression"):
        regex_full_match(_words("a"), pattern="(")


GRAMS: dict[str, Any] = {
    "ngram_counts": [0, 2],
    "ngram_indexes": [0, 1, 2],
    "pool_strings": ["a", "b", "a", "b"],
    "min_gram_length": 1,
    "max_gram_length": 2,
    "max_skip_count": 1,
}


@pytest.mark.parametrize(("mode", "expected"), [("TF", [2, 1, 2]), ("IDF", [1, 10, 100]), ("TFIDF", [2, 10, 200])])
def test_ngrams_are_counted_and_weighed(mode: str, expected: list[float]) -> None:
    # "a b" is found without a gap and over a gap of one; single words are counted once.
    y = tfidf_vectorizer(_words("a", "a", "b"), mode=mode, weights=[1.0, 10.0, 100.0], **GRAMS)
    assert y.dtype == np.float32
    assert y.tolist() == expected


def test_ngram_rows_may_be_short_or_absent() -> None:
    assert tfidf_vectorizer(np.zeros((2, 0), dtype=object), mode="TF", **GRAMS).tolist() == [[0] * 3] * 2
    with pytest.raises(InputError, match="op TfIdfVectorizer: pool and indexes differ"):
        tfidf_vectorizer(_words("a"), mode="TF", **{**GRAMS, "ngram_indexes": [0]})
    with pytest.raises(InputError, match="'mode' is unknown"):
        tfidf_vectorizer(_words("a"), mode="BM25", **GRAMS)


@pytest.mark.parametrize("counts", [[0, 2, 2**31], [2, 0], [-1, 2], [0, 5]])
def test_ngrams_lie_one_after_the_other_in_the_pool(counts: list[int]) -> None:
    with pytest.raises(InputError, match="'ngram_counts' must be places in the pool"):
        tfidf_vectorizer(_words("a"), mode="TF", **{**GRAMS, "ngram_counts": counts})


def test_ngrams_and_gaps_longer_than_a_row_cost_nothing() -> None:
    grams = {**GRAMS, "max_gram_length": 2**62, "max_skip_count": 2**62}
    assert tfidf_vectorizer(_words("a", "a", "b"), mode="TF", **grams).tolist() == [2, 1, 2]


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|aa)+$", "(.*a){20}", "([a-z]+)*1"])
def test_no_pattern_takes_longer_than_its_text_is_long(pattern: str) -> None:
    start = time.perf_counter()
    assert regex_full_match(_words("a" * 5000 + "!"), pattern=pattern).tolist() == [False]
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize("pattern", [r"(a)\1", "(?=a)a", "a{1001}", "(?<!b)a"])
def test_what_re2_does_not_take_is_refused(pattern: str) -> None:
    with pytest.raises(InputError, match="op RegexFullMatch: RE2 does not take the expression"):
        regex_full_match(_words("a"), pattern=pattern)


def test_without_re2_there_is_an_error_and_no_other_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(ResourceError, match=r"google-re2.*\n.*fix: pip install 'dovetail-engine\[text\]'"):
        regex_full_match(_words("a"), pattern="a")
