"""Shapes that vary inside a profile, on a GPU: right for each, the same by both kinds of kernels, and memory stays."""

from __future__ import annotations

import gc
import time
from typing import Any

import numpy as np
import pytest

import dovetail as dt
from tests.cuda.dynamic_models import make_bert, make_cnn

NUM_SHAPES = 1000
SIZES = ((1, 1), (2, 64), (8, 256))


def _compile(model: Any, profile: dict[str, Any], **options: str) -> Any:
    config = dt.BuilderConfig()
    config.providers = ["cuda", "cpu"]
    config.provider_options = {"cuda": options} if options else {}
    return dt.compile(model, config=config, shapes=profile)


def _make_feed(rng: Any, batch: int, length: int) -> dict[str, Any]:
    mask = rng.integers(0, 2, (batch, length))
    mask[:, 0] = 1
    return {"ids": rng.integers(0, 30, (batch, length)), "mask": mask}


def _error(found: Any, right: Any) -> float:
    wide = np.asarray(right, np.float64)
    return float(np.linalg.norm(np.asarray(found, np.float64) - wide) / max(float(np.linalg.norm(wide)), 1e-9))


@pytest.fixture(scope="module")
def bert(cuda: Any) -> Any:
    model = make_bert("float16", width=128, heads=2, depth=2, longest=256)
    engine = _compile(model, {"ids": SIZES, "mask": SIZES})
    (step,) = engine.manifest.programs[0].steps
    assert (step.kind, step.provider) == ("partition", "cuda")
    return engine


@pytest.mark.parametrize(("batch", "length"), [(2, 64), (1, 1), (3, 77), (8, 256), (5, 129)])
def test_a_transformer_is_right_for_every_shape(bert: Any, batch: int, length: int) -> None:
    feed = _make_feed(np.random.default_rng(length), batch, length)
    exact = make_bert("float32", width=128, heads=2, depth=2, longest=256)
    right = dt.compile(exact, providers=["cpu"])(**feed)
    for found, expected in zip(bert(**feed).values(), right.values(), strict=True):
        assert _error(found, expected) < 1e-2


def test_kernels_for_one_shape_and_for_any_agree(bert: Any) -> None:
    model = make_bert("float16", width=128, heads=2, depth=2, longest=256)
    tuned = _compile(model, {"ids": SIZES, "mask": SIZES}, tuned_shapes="batch=3,length=100")
    feed = _make_feed(np.random.default_rng(4), 3, 100)
    for one, two in zip(bert(**feed).values(), tuned(**feed).values(), strict=True):
        assert _error(one, two) < 3e-3
    again = bert(**feed)
    assert all(np.array_equal(one, two) for one, two in zip(bert(**feed).values(), again.values(), strict=True))


@pytest.mark.parametrize("batch", [1, 4, 7, 64])
def test_a_network_for_images_is_right_for_every_batch(cuda: Any, batch: int) -> None:
    shapes = {"x": tuple((n, 3, 32, 32) for n in (1, 4, 64))}
    engine = _compile(make_cnn("float16", size=32, width=32), shapes)
    x = np.random.default_rng(batch).standard_normal((batch, 3, 32, 32)).astype(np.float32)
    right = dt.compile(make_cnn("float32", size=32, width=32), providers=["cpu"])(x)
    assert _error(engine(x.astype(np.float16)), right) < 1e-2


def test_a_thousand_shapes_take_no_more_memory(bert: Any, capsys: Any) -> None:
    provider, rng = bert.providers["cuda"], np.random.default_rng(8)
    shapes = [(int(rng.integers(1, 9)), int(rng.integers(1, 257))) for _ in range(NUM_SHAPES)]
    with bert.create_execution_context() as context:
        _run_all(context, rng, shapes[:100])
        before, start = _free_bytes(provider), time.perf_counter()
        _run_all(context, rng, shapes)
        took_us = (time.perf_counter() - start) / NUM_SHAPES * 1e6
        assert before - _free_bytes(provider) <= 8 << 20
    with capsys.disabled():
        print(f"\n{NUM_SHAPES} shapes of {took_us:.0f} us each, binding and copies included")


def _run_all(context: Any, rng: Any, shapes: list[tuple[int, int]]) -> None:
    for batch, length in shapes:
        results = context.run(list(_make_feed(rng, batch, length).values()))
        assert all(np.isfinite(np.asarray(result, np.float32)).all() for result in results)


def _free_bytes(provider: Any) -> int:
    gc.collect()
    provider._gpu.release_now()
    return int(provider._gpu.driver.measure_free_bytes())
