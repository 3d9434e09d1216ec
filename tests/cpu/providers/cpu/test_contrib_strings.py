"""Tokenizer against ONNX Runtime: expressions, separators, characters, marks and nothing at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import InputError
from tests.support.ort_node import run_kernel, run_ort

TEXTS = ["ab cd", "é f", "", "a,b;c", "aa,,bb;", "日本 語", "x1 y22"]


def _check(texts: Any, **attributes: Any) -> None:
    x = np.array(texts, dtype=object)
    full = {"mark": 0, "pad_value": "#", "mincharnum": 1, **attributes}
    (ours,), (theirs,) = run_kernel("Tokenizer", [x], full), run_ort("Tokenizer", [x], full)
    assert theirs is not None
    assert ours.shape == theirs.shape
    assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("mark", [0, 1])
@pytest.mark.parametrize("texts", [TEXTS, [[text] for text in TEXTS], [TEXTS], ["", ""]], ids=range(4))
@pytest.mark.parametrize(
    "attributes",
    [
        {"tokenexp": "[a-z]+"},
        {"tokenexp": "[a-z]+", "mincharnum": 2},
        {"tokenexp": "."},
        {"tokenexp": r"\w+"},
        {"tokenexp": "a|ab|b;c"},
        {"tokenexp": "a?(ab)?"},
        {"tokenexp": "x*"},
        {"separators": [""]},
        {"separators": [" "]},
        {"separators": [",", ";"]},
        {"separators": [",+|;", "a"], "mincharnum": 2},
        {"separators": [" "], "tokenexp": "a"},
    ],
    ids=str,
)
def test_tokens_are_those_of_onnxruntime(texts: Any, attributes: dict[str, Any], mark: int) -> None:
    _check(texts, mark=mark, **attributes)


@pytest.mark.parametrize("shape", [(0,), (0, 2), (2, 0)])
def test_nothing_has_no_tokens(shape: tuple[int, ...]) -> None:
    _check(np.empty(shape, dtype=object), tokenexp="a")
    _check(np.empty(shape, dtype=object), separators=[""])


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.text("ab,; ", max_size=6), min_size=1, max_size=3),
    st.sampled_from(["a|ab", "(a|ab)(b|,)?", "a*b", "[ab]+?,", "ab?a?"]),
)
def test_the_longest_match_counts(texts: list[str], expression: str) -> None:
    _check(texts, tokenexp=expression)
    _check(texts, separators=[expression])


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, "'separators' or 'tokenexp' must be given"),
        ({"tokenexp": "("}, "RE2 does not take the expression"),
        ({"separators": ["", " "]}, "must be the only one"),
        ({"tokenexp": "a", "mincharnum": 0}, "must be positive"),
        ({"tokenexp": ".", "mincharnum": 2}, "must be 1"),
    ],
)
def test_what_makes_no_sense_is_named(attributes: dict[str, Any], expected: str) -> None:
    full = {"mark": 0, "pad_value": "#", "mincharnum": 1, **attributes}
    with pytest.raises(InputError, match=expected):
        run_kernel("Tokenizer", [np.array(["a"], dtype=object)], full)


def test_three_axes_are_too_many() -> None:
    attributes = {"mark": 0, "pad_value": "#", "mincharnum": 1, "tokenexp": "a"}
    with pytest.raises(InputError, match=r"must be \[C\] or \[N, C\]"):
        run_kernel("Tokenizer", [np.array([[["a"]]], dtype=object)], attributes)
