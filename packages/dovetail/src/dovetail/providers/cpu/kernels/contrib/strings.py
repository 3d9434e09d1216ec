"""Tokenizer of ONNX Runtime's own domain, which text models of scikit-learn are exported with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels._checks import require, require_room
from dovetail.providers.cpu.kernels._patterns import compile_pattern
from dovetail.providers.cpu.kernels._support import STRING
from dovetail.providers.cpu.registry import kernel

__all__ = ["tokenizer"]

_OP: Final = "Tokenizer"
_START, _END = "\x02", "\x03"


@kernel("Tokenizer", since=1, domain="com.microsoft", types={"T": STRING})
def tokenizer(
    x: Array,
    *,
    mark: int,
    mincharnum: int,
    pad_value: str,
    separators: Sequence[str] | None = None,
    tokenexp: str | None = None,
) -> Array:
    """Cut each string into tokens on a new last axis, filled up with ``pad_value``.

    Tokens are what lies between separators, what an expression matches, or single characters. Expressions are read as
    ONNX Runtime reads them: leftmost and longest, with classes of ASCII.
    """
    require(x.ndim in (1, 2), _OP, "the input must be [C] or [N, C]", got=x.shape)
    require(mincharnum > 0, _OP, "'mincharnum' must be positive", got=mincharnum)
    require(bool(separators) or bool(tokenexp), _OP, "'separators' or 'tokenexp' must be given")
    cut = _make_cut(list(separators or ()), tokenexp or "", mincharnum)
    if not x.size:
        return np.empty((0,) if x.ndim == 1 else (x.shape[0], 0), dtype=object)
    rows = [[token for token in cut(text) if len(token) >= mincharnum] for text in x.reshape(-1)]
    longest = max(map(len, rows))
    width = longest + 2 if mark and longest else longest
    require_room(_OP, (x.size, width), np.dtype(object))
    y = np.full((x.size, width), pad_value, dtype=object)
    for line, tokens in zip(y, rows, strict=True):
        found = [_START, *tokens, _END] if mark and longest else tokens
        line[: len(found)] = found
    return y.reshape(*x.shape, width)


def _make_cut(separators: list[str], tokenexp: str, mincharnum: int) -> Callable[[str], Sequence[str]]:
    """How a string becomes tokens; separators count where both are given."""
    if separators == [""] or (not separators and tokenexp == "."):
        require(mincharnum == 1, _OP, "'mincharnum' must be 1 where tokens are characters", got=mincharnum)
        return list
    if not separators:
        pattern = _compile(tokenexp)
        return lambda text: [text[start:end] for start, end in _find_spans(pattern, text)]
    require("" not in separators, _OP, "an empty separator must be the only one", got=separators)
    patterns = [_compile(separator) for separator in separators]

    def cut(text: str) -> list[str]:
        parts = [text]
        for pattern in patterns:
            parts = [piece for part in parts for piece in _split(pattern, part)]
        return parts

    return cut


def _compile(text: str) -> Any:
    return compile_pattern(_OP, text, longest=True)


def _split(pattern: Any, text: str) -> Iterator[str]:
    position = 0
    for start, end in _find_spans(pattern, text):
        yield text[position:start]
        position = end
    yield text[position:]


def _find_spans(pattern: Any, text: str) -> Iterator[tuple[int, int]]:
    """Where a pattern matches, from the left, each time as much as it can; nothing is no match."""
    for match in pattern.finditer(text):
        start, end = match.span()
        if end > start:
            yield start, end
