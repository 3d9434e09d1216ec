"""Sequences that are known when a plan is built become moves of tensors; all others stay, and results are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import dovetail as dt
from dovetail.network.importer.importer import import_model
from dovetail.passes import standard_passes
from dovetail.passes.base import run_passes

HEAD = '<ir_version: 10, opset_import: ["" : 21]> g '
TWO = "(float[2,3] x, float[2,3] z) => (float[{}] y) {{ {} }}"
ONE = "i = Constant<value=int64{1}>()"
MODELS: dict[str, tuple[str, list[str]]] = {
    # the model, and the operators that are left
    "at": (TWO.format("2,3", f"{ONE} s = SequenceConstruct(x, z) a = SequenceAt(s, i) y = Neg(a)"), ["Neg"]),
    "at the back": (
        TWO.format(
            "2,3", "i = Constant<value=int64{-2}>() s = SequenceConstruct(x, z) a = SequenceAt(s, i) y = Neg(a)"
        ),
        ["Neg"],
    ),
    "an output": (TWO.format("2,3", f"{ONE} s = SequenceConstruct(x, z) y = SequenceAt(s, i)"), ["Identity"]),
    "concat": (TWO.format("4,3", "s = SequenceConstruct(x, z) y = ConcatFromSequence<axis=0>(s)"), ["Concat"]),
    "stack": (
        TWO.format("2,2,3", "s = SequenceConstruct(x, z) y = ConcatFromSequence<axis=-2, new_axis=1>(s)"),
        ["Unsqueeze", "Unsqueeze", "Concat"],
    ),
    "grown": (
        TWO.format(
            "6,3",
            "i = Constant<value=int64{-1}>() e = SequenceEmpty() s = SequenceInsert(e, x) t = SequenceInsert(s, z, i) "
            "u = SequenceInsert(t, x) y = ConcatFromSequence<axis=0>(u)",
        ),
        ["Concat"],
    ),
    "shrunk": (
        TWO.format(
            "2,3",
            "i = Constant<value=int64{0}>() s = SequenceConstruct(x, z, x, x) t = SequenceErase(s, i) "
            "u = SequenceErase(t) v = SequenceErase(u) w = Identity(v) a = SequenceAt(w, i) y = Neg(a)",
        ),
        ["Neg"],
    ),
    "halves": (
        (
            "(float[6,4] x) => (float[2,4] y) { "
            "n = Constant<value=int64[2]{4,2}>() i = Constant<value=int64{1}>() "
            "s = SplitToSequence<axis=0>(x, n) y = SequenceAt(s, i) }"
        ),
        ["Split"],
    ),
    "chunks": (
        (
            "(float[2,7] x) => (float[2,1] y, float[2,3] z) { "
            "n = Constant<value=int64{3}>() i = Constant<value=int64{2}>() j = Constant<value=int64{0}>() "
            "s = SplitToSequence<axis=-1>(x, n) y = SequenceAt(s, i) z = SequenceAt(s, j) }"
        ),
        ["Split"],
    ),
    "slices": (
        (
            "(float[3,4] x) => (float[4] y, int64 n) { i = Constant<value=int64{2}>() "
            "s = SplitToSequence<axis=0, keepdims=0>(x) y = SequenceAt(s, i) n = SequenceLength(s) }"
        ),
        ["Split", "Squeeze", "Identity"],
    ),
    "a body": (
        (
            "(bool c, float[2,3] x, float[2,3] z) => (float[2,3] y) { i = Constant<value=int64{1}>() "
            "s = SequenceConstruct(x, z) y = If(c) < "
            "then_branch = t () => (float[2,3] a) { a = SequenceAt(s, i) }, "
            "else_branch = e () => (float[2,3] b) { b = Neg(x) }> }"
        ),
        ["If"],
    ),
}
STAYING = {
    "a position of the run": "(float[3] x, float[3] z, int64 i) => (float[3] y) "
    "{ s = SequenceConstruct(x, z) y = SequenceAt(s, i) }",
    "a length of the run": "(float[n] x) => (int64 y) { s = SplitToSequence<axis=0>(x) y = SequenceLength(s) }",
    "a sequence of the caller": "(seq(float[3]) s) => (int64 y) { y = SequenceLength(s) }",
}


def _clean(model: onnx.ModelProto) -> ir.Model:
    imported = import_model(model)
    run_passes(imported, standard_passes(keep=frozenset()), check=True)
    return imported


def _inputs(model: onnx.ModelProto) -> list[Any]:
    rng = np.random.default_rng(5)
    shapes = [[dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in model.graph.input]
    kinds = [value.type.tensor_type.elem_type for value in model.graph.input]
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    return [
        np.array(True) if kind == onnx.TensorProto.BOOL else array for kind, array in zip(kinds, arrays, strict=True)
    ]


@pytest.mark.parametrize("name", MODELS)
def test_known_sequences_are_taken_apart(name: str) -> None:
    text, ops = MODELS[name]
    model = onnx.parser.parse_model(HEAD + text)
    cleaned = _clean(model)
    assert [node.op_type for node in cleaned.graph] == ops
    assert not [node for node in cleaned.graph.all_nodes() if "Sequence" in node.op_type]


@pytest.mark.parametrize("name", MODELS)
def test_results_stay_the_same(name: str) -> None:
    model = onnx.parser.parse_model(HEAD + MODELS[name][0])
    inputs = _inputs(model)
    config = dt.BuilderConfig()
    config.passes_off = ["sequences"]
    plain = dt.compile(model, providers=["cpu"], config=config)(*inputs)
    results = dt.compile(model, providers=["cpu"])(*inputs)
    pairs = [(results[key], plain[key]) for key in plain] if isinstance(plain, dict) else [(results, plain)]
    for result, expected in pairs:
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("name", STAYING)
def test_what_a_run_decides_stays_a_sequence(name: str) -> None:
    cleaned = _clean(onnx.parser.parse_model(HEAD + STAYING[name]))
    assert [node.op_type for node in cleaned.graph if "Sequence" in node.op_type]


def test_a_position_that_is_not_there_is_still_an_error_of_the_run() -> None:
    text = TWO.format("2,3", "i = Constant<value=int64{2}>() s = SequenceConstruct(x, z) y = SequenceAt(s, i)")
    model = onnx.parser.parse_model(HEAD + text)
    with pytest.raises(dt.DovetailError, match="SequenceAt"):
        dt.compile(model, providers=["cpu"])(*_inputs(model))


def test_an_older_model_keeps_what_it_has_no_moves_for() -> None:
    text = '<ir_version: 7, opset_import: ["" : 12]> g ' + MODELS["chunks"][0]
    assert next(node.op_type for node in _clean(onnx.parser.parse_model(text)).graph) == "SplitToSequence"
