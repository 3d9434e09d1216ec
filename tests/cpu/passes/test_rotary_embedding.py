"""Rotary embeddings: halves by Slice or Split, caches that are constant, computed or gathered, and what is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dovetail.passes.fusions.base import always
from dovetail.passes.fusions.rotary_embedding import RotaryEmbeddingFusion
from tests.support.pass_graphs import check_numbers, make, ops

NUMBERS = {
    "zero": 0,
    "one": 1,
    "quarter": 2,
    "mid": 4,
    "size": 8,
    "end": np.iinfo(np.int64).max,
    "last": -1,
    "three": 3,
    "heads": 1,
}
CONSTANTS: dict[str, Any] = {name: np.array([number]) for name, number in NUMBERS.items()}
SLICES = "p = Slice(x, zero, mid, three, one) q = Slice(x, mid, end, three, one)"
TURN = "n = Neg(q) r = Concat<axis = -1>(n, p)"
SUM = "a = Mul(x, cos) b = Mul(r, sin) y = Add(a, b)"
CACHES = "c3 = Cos(e) s3 = Sin(e) cos = Unsqueeze(c3, heads) sin = Unsqueeze(s3, heads)"
COMPUTED = f"e = Concat<axis = -1>(f, f) {CACHES}"


def fuse(body: str, inputs: str) -> tuple[list[str], list[str]]:
    model = make(f"g ({inputs}) => (float[b, 4, s, 8] y) {{ {body} }}", **CONSTANTS)
    changed = check_numbers(model, [RotaryEmbeddingFusion(accepts=always)], sizes={"b": 2, "s": 5})
    return ops(model), changed


@pytest.mark.parametrize("batch", ["1", "b"])
@pytest.mark.parametrize(
    "halves",
    [
        SLICES,
        SLICES.replace("three", "last").replace("end", "size"),
        "p, q = Split<axis = -1, num_outputs = 2>(x)",
        "p, q = Split<axis = 3, num_outputs = 2>(x)",
    ],
)
@pytest.mark.parametrize("products", [SUM, "a = Mul(cos, x) b = Mul(sin, r) y = Add(b, a)"])
def test_forms(batch: str, halves: str, products: str) -> None:
    inputs = f"float[b, 4, s, 8] x, float[{batch}, s, 4] f"
    names, changed = fuse(f"{COMPUTED} {halves} {TURN} {products}", inputs)
    assert names.count("RotaryEmbedding") == 1
    assert "Neg" not in names
    assert names.count("Expand") == (2 if batch == "1" else 0)
    assert len(changed) == 1


def test_caches_are_cut_once_for_all_layers() -> None:
    first = f"{SLICES} {TURN} a = Mul(x, cos) b = Mul(r, sin) z = Add(a, b)"
    second = """p2, q2 = Split<axis = -1, num_outputs = 2>(z) n2 = Neg(q2) r2 = Concat<axis = -1>(n2, p2)
    a2 = Mul(z, cos) b2 = Mul(r2, sin) y = Add(a2, b2)"""
    names, changed = fuse(f"{COMPUTED} {first} {second}", "float[b, 4, s, 8] x, float[1, s, 4] f")
    assert names.count("RotaryEmbedding") == 2
    assert names.count("Slice") == 2
    assert len(changed) == 2


@pytest.mark.parametrize(
    ("shape", "batch"),
    [((2, 1, 5, 8), "2"), *((shape, batch) for shape in [(1, 1, 5, 8), (1, 5, 8), (5, 8)] for batch in "2b")],
)
def test_constant_caches(shape: tuple[int, ...], batch: str) -> None:
    half = np.random.default_rng(2).standard_normal((*shape[:-1], 4)).astype(np.float32)
    cache = np.concatenate([half, half], axis=-1)
    text = f"g (float[{batch}, 4, 5, 8] x) => (float[{batch}, 4, 5, 8] y) {{ {SLICES} {TURN} {SUM} }}"
    model = make(text, **CONSTANTS, cos=cache, sin=cache[..., ::-1, :])
    check_numbers(model, [RotaryEmbeddingFusion(accepts=always)], sizes={"b": 2})
    assert ops(model).count("RotaryEmbedding") == 1
    assert ("Expand" in ops(model)) == (batch == "b")


@pytest.mark.parametrize("is_doubled", [False, True])
def test_caches_that_are_gathered(is_doubled: bool) -> None:
    half = np.random.default_rng(2).standard_normal((9, 4)).astype(np.float32)
    table = np.concatenate([half, half if is_doubled else half[:, ::-1]], axis=-1)
    body = f"g0 = Gather(table, at) cos = Unsqueeze(g0, heads) sin = Unsqueeze(g0, heads) {SLICES} {TURN} {SUM}"
    text = f"g (float[b, 4, s, 8] x, int64[b, s] at) => (float[b, 4, s, 8] y) {{ {body} }}"
    model = make(text, **CONSTANTS, table=table)
    changed = check_numbers(model, [RotaryEmbeddingFusion(accepts=always)])
    assert len(changed) == ops(model).count("RotaryEmbedding") == int(is_doubled)


def test_caches_to_keep() -> None:
    cache = np.ones((5, 8), dtype=np.float32)
    text = f"g (float[2, 4, 5, 8] x) => (float[2, 4, 5, 8] y) {{ {SLICES} {TURN} {SUM} }}"
    model = make(text, **CONSTANTS, cos=cache, sin=cache)
    assert check_numbers(model, [RotaryEmbeddingFusion(accepts=always, keep=frozenset({"cos"}))]) == []


@pytest.mark.parametrize(
    "body",
    [
        f"{COMPUTED} p = Slice(x, zero, quarter, three, one) q = Slice(x, quarter, end, three, one) {TURN} {SUM}",
        f"{COMPUTED} {SLICES} n = Neg(p) r = Concat<axis = -1>(n, q) {SUM}",
        f"h = Neg(f) e = Concat<axis = -1>(f, h) {CACHES} {SLICES} {TURN} {SUM}",
        f"{COMPUTED} {SLICES} {TURN} {SUM.replace('Add', 'Sub')}",
        f"{COMPUTED} {SLICES} {TURN} z = Neg(x) {SUM.replace('Mul(x', 'Mul(z')}",
    ],
)
def test_what_is_none(body: str) -> None:
    names, changed = fuse(body, "float[b, 4, s, 8] x, float[1, s, 4] f")
    assert changed == []
    assert "RotaryEmbedding" not in names
