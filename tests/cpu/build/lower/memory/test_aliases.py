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


def _build(text: str, aliases: dict[str, str], providers: Any = ("cpu",), **shapes: Any) -> Any:
    config = dovetail.BuilderConfig()
    config.providers, config.aliases = providers, aliases
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


def test_memory_that_would_be_copied_first_is_refused() -> None:
    feed = _feed(np.random.default_rng(5))
    feed["past"] = np.concatenate([feed["past"]] * 2, axis=3)[..., ::2]
    with pytest.raises(InputError, match=r"input 'past'.*not contiguous"):
        _build(CACHE, {"present": "past"})(**feed)


def test_a_size_that_only_a_run_tells_must_be_that_of_the_input() -> None:
    engine = _build(HEAD + "(float[N] x, float[M] z) => (float[K] y) { y = Add(x, z) }", {"y": "x"})
    with pytest.raises(InputError, match=r"output 'y'.*another size.*4 bytes"):
        engine(x=np.ones(1, np.float32), z=np.ones(5, np.float32))


@pytest.mark.parametrize("providers", [None, ["onnxruntime", "cpu"]])
def test_a_provider_that_makes_new_memory_leaves_the_update_to_another(providers: Any) -> None:
    engine = _build(CACHE, {"present": "past"}, providers)
    kinds = {step.op: step.provider for step in engine.manifest.programs[0].steps}
    assert kinds == {"TensorScatter": "cpu", "Partition": "onnxruntime"}
    assert any("new memory" in note.text for note in engine.manifest.notes)
    feed = _feed(np.random.default_rng(6))
    expected = _build(CACHE, {})(**{name: array.copy() for name, array in feed.items()})
    results = engine(**feed)
    assert np.shares_memory(results["present"], feed["past"])
    for name, array in expected.items():
        np.testing.assert_allclose(results[name], array, rtol=1e-5)


def test_rivals_agree_and_leave_inputs_alone() -> None:
    config, x = dovetail.BuilderConfig(), np.ones((4, 4), np.float32)
    config.providers, config.aliases, config.rivals = ["onnxruntime", "cpu"], {"y": "x"}, True
    config.rival_inputs = {"x": x, "z": np.ones((4, 4), np.float32)}
    model = onnx.parser.parse_model(
        HEAD + "(float[4,4] x, float[4,4] z) => (float[4,4] y, float[4,4] w) { y = Add(x, z) w = Tanh(y) }"
    )
    (told, *_) = dovetail.compile(model, config=config).manifest.notes
    assert "wrong" not in told.text
    np.testing.assert_array_equal(x, 1)


def _cached(*, form: Any = None, is_output: bool = True, is_read: bool = False) -> Any:
    network = dovetail.Builder().create_network()
    packed = form == dovetail.AttentionIOForm.PACKED_NHD
    past = network.add_input("past", dovetail.float32, (2, 3, 8, 4))
    new = network.add_input("new", dovetail.float32, (4, 3, 4) if packed else (2, 3, 2, 4))
    layer = network.add_kv_cache_update(past, new, network.add_input("at", dovetail.int32, (2,)))
    if packed:
        layer.update_form, layer.update_lengths = form, network.add_input("lengths", dovetail.int32, (3,))
    present = layer.get_output(0)
    tensors = {"y": network.add_unary(present, dovetail.UnaryOperation.EXP).get_output(0)}
    tensors |= {"present": present} if is_output else {}
    tensors |= {"old": network.add_unary(past, dovetail.UnaryOperation.EXP).get_output(0)} if is_read else {}
    for name, tensor in tensors.items():
        tensor.name = name
        network.mark_output(tensor)
    return network


@pytest.mark.parametrize("providers", [None, ["cpu"]])
def test_a_layer_that_updates_an_input_needs_no_wish(providers: Any) -> None:
    engine = dovetail.compile(_cached(), providers=providers)
    assert engine.get_aliased_input_tensor("present") == "past"
    feed = {"past": np.ones((2, 3, 8, 4), np.float32), "new": np.zeros((2, 3, 2, 4), np.float32)}
    engine(**feed, at=np.array([1, 5], np.int32))
    assert feed["past"][0, 0, :, 0].tolist() == [1, 0, 0, 1, 1, 1, 1, 1]
    assert feed["past"][1, 0, :, 0].tolist() == [1, 1, 1, 1, 1, 0, 0, 1]


@pytest.mark.parametrize(
    "options", [{"is_output": False}, {"is_read": True}, {"form": dovetail.AttentionIOForm.PACKED_NHD}], ids=str
)
def test_where_it_cannot_the_cache_is_made_anew(options: Any) -> None:
    engine = dovetail.compile(_cached(**options), providers=["cpu"])
    assert not engine.updated_inputs


def test_a_model_cannot_have_inputs_written_over_by_itself() -> None:
    network = _cached()
    feed = {"past": np.ones((2, 3, 8, 4), np.float32), "new": np.zeros((2, 3, 2, 4), np.float32)}
    dovetail.compile(network.to_model(), providers=["cpu"])(**feed, at=np.array([1, 5], np.int32))
    np.testing.assert_array_equal(feed["past"], 1)


def test_a_wish_for_another_output_comes_first() -> None:
    config = dovetail.BuilderConfig()
    config.providers, config.aliases = ["cpu"], {"old": "past"}
    engine = dovetail.compile(_cached(is_read=True), config=config)
    assert [engine.get_aliased_input_tensor(name) for name in ("old", "present")] == ["past", None]


@pytest.mark.parametrize(
    ("aliases", "message"),
    [
        (None, "not the names of outputs and inputs.*got None"),
        ([("present", "past")], "not the names of outputs and inputs"),
        ({"present": 1}, "not the names of outputs and inputs"),
        ({"present": "new"}, r"as many elements as \[2,3,2,4\] has, got \[2,3,8,4\]"),
        ({"presnt": "past"}, "no output 'presnt'.*'present'"),
        ({"present": "pas"}, "no input 'pas'.*'past'"),
        ({"present": "at"}, "cannot have the memory of input 'at'"),
        ({"present": "past", "y": "past"}, "two outputs are to get the memory of input 'past'"),
    ],
)
def test_wishes_that_make_no_sense_are_told_first(aliases: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=f"(?s){message}"):
        _build(CACHE.replace("N", "2"), aliases)


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
