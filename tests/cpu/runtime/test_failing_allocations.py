"""Memory that runs out at the n-th array, for every n: a named error, and everything works again afterwards."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import parser

import dovetail
from dovetail.errors import DovetailError

ARRAYS = ("array", "asarray", "ascontiguousarray", "concatenate", "copy", "empty", "full", "ones", "stack", "zeros")
MODEL = """<ir_version: 10, opset_import: ["" : 21]> g (float[N,4] x, int64 n) => (float[N,4] y, float[M,K] z)
    <float[4] w = {1, 2, 3, 4}, int64[2] s = {-1, 4}> {
    k = Add(w, w) a = Mul(x, k) r = Reshape(a, s) t = Transpose<perm = [1, 0]>(r) u = MatMul(r, t)
    y, q = Loop (n, "", r) <body = b (int64 i, bool c, float[N,4] v) => (bool c2, float[N,4] v2, float[N,4] o) {
        c2 = Identity(c) v2 = Neg(v) o = Abs(v) }> z = Softmax(u) }"""


class _FailingArrays:
    """Counts calls that make arrays, and has the n-th fail."""

    def __init__(self, patch: pytest.MonkeyPatch, turn: int) -> None:
        self.count = 0
        for name in ARRAYS:
            patch.setattr(np, name, self._wrap(getattr(np, name), turn))

    def _wrap(self, make: Callable[..., Any], turn: int) -> Callable[..., Any]:
        def wrapped(*args: Any, **named: Any) -> Any:
            self.count += 1
            if self.count == turn:
                raise MemoryError
            return make(*args, **named)

        return wrapped


def _build() -> dovetail.Engine:
    return dovetail.compile(parser.parse_model(MODEL), providers=["cpu"])


def _fail_all(monkeypatch: pytest.MonkeyPatch, action: Callable[[], Any]) -> int:
    """Do something once for each array it makes, with that one failing; how many there were."""
    for turn in itertools.count(1):
        with monkeypatch.context() as patch:
            arrays = _FailingArrays(patch, turn)
            try:
                action()
            except DovetailError:
                continue
        if arrays.count < turn:
            return turn - 1
    raise AssertionError


def test_a_run_names_what_failed_and_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    x, rounds = np.arange(8, dtype=np.float32).reshape(2, 4), np.array(3)
    expected, engine = _build()(x, rounds), _build()
    assert _fail_all(monkeypatch, lambda: engine(x, rounds)) > 5
    again = engine(x, rounds)
    for name, array in expected.items():
        np.testing.assert_array_equal(again[name], array)


def test_a_plan_is_loaded_and_run_or_says_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, x, rounds = bytes(_build().serialize()), np.ones((2, 4), np.float32), np.array(1)
    assert _fail_all(monkeypatch, lambda: dovetail.Runtime().deserialize_cuda_engine(plan)(x, rounds)) > 5


def test_a_build_ends_with_a_plan_or_a_named_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _fail_all(monkeypatch, lambda: _build().close()) > 10
