"""Outputs in the memory of inputs, as callers ask for them: written in place, or refused with a reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import dovetail
from dovetail.errors import BuildError, InputError, UsageError

HEAD = '<ir_version: 10, opset_import: ["" : 24]> g '
CACHE = (
    HEAD
    + """(float[2,3,8,4] past, float[2,3,N,4] new, int64[2] at) => (float[2,3,8,4] present, float[2,3,8,4] y) {
    present = TensorScatter<axis=2>(past, new, at)
    y = Exp(present)
}"""
)


def _build(text: str, aliases: dict[str, str], **shapes: Any) -> Any:
    config = dovetail.BuilderConfig()
    config.providers, config.aliases = ["cpu"], aliases
    return dovetail.compile(onnx.parser.parse_model(text), config=config, shapes=shapes or None)


def _feed(rng: Any, added: int = 2) -> dict[str, Any]:
    past, new = (rng.standard_normal((2, 3, length, 4)).astype(np.float32) for length in (8, added))
    return {"past": past, "new": new, "at": np.array([1, 5])}


def test_a_cache_is_updated_in_its_own_memory() -> None:
    engine = _build(CACHE, {"present": "past"})
    assert engine.get_aliased_input_tensor("present") == "past"
    feed = _feed(np.random.default_rng(1))
    expected = feed["past"].copy()
    for sample, start in enumerate(feed["at"]):
        expected[sample, :, start : start + 2] = feed["new"][sample]
    results = engine(**feed)
    assert np.shares_memory(results["present"], feed["past"])
    np.testing.assert_array_equal(feed["past"], expected)
    np.testing.assert_allclose(results["y"], np.exp(expected), rtol=1e-6)


def test_a_saved_plan_keeps_it() -> None:
    engine = dovetail.Runtime().deserialize_cuda_engine(_build(CACHE, {"present": "past"}).serialize())
    feed = _feed(np.random.default_rng(2))
    assert np.shares_memory(engine(**feed)["present"], feed["past"])


def test_addresses_must_be_one() -> None:
    engine = _build(CACHE, {"present": "past"}, new=(2, 3, 2, 4))
    context, feed = engine.create_execution_context(), _feed(np.random.default_rng(3))
    outputs = {name: np.empty((2, 3, 8, 4), np.float32) for name in ("present", "y")}
    context.set_input_shape("new", (2, 3, 2, 4))
    for name, array in {**feed, **outputs}.items():
        context.set_tensor_address(name, array.ctypes.data)
    with pytest.raises(InputError, match="it shares memory with input 'past'"):
        context.execute_v2([array.ctypes.data for array in (*feed.values(), *outputs.values())])


def test_memory_that_cannot_be_written_is_refused() -> None:
    feed = _feed(np.random.default_rng(4))
    feed["past"].flags.writeable = False
    with pytest.raises(InputError, match="read-only"):
        _build(CACHE, {"present": "past"})(**feed)


@pytest.mark.parametrize(
    ("aliases", "message"),
    [
        ({"presnt": "past"}, "no output 'presnt'.*'present'"),
        ({"present": "pas"}, "no input 'pas'.*'past'"),
        ({"present": "at"}, "cannot have the memory of input 'at'"),
        ({"present": "past", "y": "past"}, "two outputs are to get the memory of input 'past'"),
    ],
)
def test_wishes_that_make_no_sense_are_told_first(aliases: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=f"(?s){message}"):
        _build(CACHE, aliases)


@pytest.mark.parametrize(
    "body",
    [
        "{ t = Exp(x) y = Neg(t) z = Abs(x) }",  # made of another value
        "{ y = Neg(x) z = Add(x, y) }",  # somebody reads what was there
    ],
)
def test_what_cannot_be_written_in_place_ends_the_build(body: str) -> None:
    with pytest.raises(BuildError, match="output 'y' cannot be written over input 'x'"):
        _build(HEAD + "(float[4] x) => (float[4] y, float[4] z) " + body, {"y": "x"})
