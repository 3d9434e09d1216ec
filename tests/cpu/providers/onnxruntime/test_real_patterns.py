"""What exporters write and real models have: weights in branches, operators that are defined by others, open dims."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail as dt

RNG = np.random.default_rng(0)


def _port(name: str, dims: list[Any], kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, dims)


def _model(nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: list[Any], opset: int = 17) -> Any:
    graph = helper.make_graph(nodes, "pattern", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _reference(model: onnx.ModelProto, **feeds: Any) -> list[Any]:
    """ONNX Runtime with the options it has by default, in this very process."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    results: list[Any] = session.run(None, feeds)
    return results


def _kinds(engine: dt.Engine) -> list[str]:
    return [step.kind for step in engine.manifest.programs[0].steps]


def _branch(name: str, scale: float) -> onnx.GraphProto:
    """A branch that has a weight of its own, large enough to be written to a file."""
    weight = numpy_helper.from_array((RNG.standard_normal((64, 64)) * scale).astype(np.float32), f"{name}_w")
    node = helper.make_node("MatMul", ["x", f"{name}_w"], [f"{name}_y"])
    return helper.make_graph([node], name, [], [_port(f"{name}_y", ["n", 64])], [weight])


def test_weights_in_branches_are_part_of_the_plan(tmp_path: Path) -> None:
    node = helper.make_node("If", ["c"], ["y"], then_branch=_branch("one", 1), else_branch=_branch("two", 2))
    model = _model([node], [_port("c", [], TensorProto.BOOL), _port("x", ["n", 64])], [_port("y", ["n", 64])], [])
    x = RNG.standard_normal((3, 64)).astype(np.float32)
    with dt.compile(model) as engine:
        assert _kinds(engine) == ["partition"]
        engine.save(tmp_path / "m.plan")
        with dt.load(tmp_path / "m.plan") as loaded:
            for c in (np.array(True), np.array(False)):
                (expected,) = _reference(model, c=c, x=x)
                np.testing.assert_allclose(engine(c, x), expected, rtol=1e-5)
                np.testing.assert_array_equal(loaded(c, x), engine(c, x))


@pytest.mark.parametrize(
    ("op", "opset"), [("HardSwish", 14), ("HardSwish", 22), ("Mish", 18), ("GroupNormalization", 21)]
)
def test_an_operator_that_others_define_stays_in_the_partition(op: str, opset: int) -> None:
    attributes, inputs, weights = {}, ["a"], []
    if op == "GroupNormalization":
        attributes, inputs = {"num_groups": 2}, ["a", "s", "s"]
        weights = [numpy_helper.from_array(np.ones(4, np.float32), "s")]
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node(op, inputs, ["b"], **attributes)]
    nodes.append(helper.make_node("Neg", ["b"], ["y"]))
    model = _model(nodes, [_port("x", ["n", 4, 5])], [_port("y", ["n", 4, 5])], weights, opset)
    x = RNG.standard_normal((2, 4, 5)).astype(np.float32)
    with dt.compile(model) as engine:
        assert _kinds(engine) == ["partition"]
        np.testing.assert_allclose(engine(x), _reference(model, x=x)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mark", ["?", "None", "-1", "*"])
def test_dims_that_exporters_mark_alike_are_not_one(mark: str) -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    model = _model([node], [_port("x", [mark, 3, mark])], [_port("y", [mark, 3, mark])], [])
    with dt.compile(model) as engine:
        assert engine(np.ones((2, 3, 7), np.float32)).shape == (2, 3, 7)
        assert engine(np.ones((5, 3, 1), np.float32)).shape == (5, 3, 1)


def test_a_shape_that_only_the_file_tells_is_used_further_on() -> None:
    """The result of an operator that inference knows nothing of; the file has its rank and no names."""
    nodes = [
        helper.make_node("MatMulIntegerToFloat", ["x", "q", "s", "s"], ["a"], domain="com.microsoft"),
        helper.make_node("Transpose", ["a"], ["t"], perm=[1, 0]),
        helper.make_node("Add", ["t", "w"], ["y"]),
    ]
    weights = [
        numpy_helper.from_array(np.ones(1, np.float32), "w"),
        numpy_helper.from_array(np.ones((4, 2), np.uint8), "q"),
        numpy_helper.from_array(np.float32(0.5), "s"),
    ]
    model = _model(nodes, [_port("x", ["n", 4], TensorProto.UINT8)], [_port("y", [2, "n"])], weights)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    model.graph.value_info.append(_port("a", [None, 2]))
    x = RNG.integers(0, 9, (3, 4)).astype(np.uint8)
    with dt.compile(model) as engine:
        np.testing.assert_allclose(engine(x), _reference(model, x=x)[0], rtol=1e-6)


def test_large_weights_go_through_a_file_that_nobody_sees_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    weight = RNG.standard_normal((1500, 1000)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    model = _model(nodes, [_port("x", ["n", 1500])], [_port("y", ["n", 1000])], [numpy_helper.from_array(weight, "w")])
    x = RNG.standard_normal((2, 1500)).astype(np.float32)
    with dt.compile(model) as engine:
        assert list(tmp_path.iterdir()) == []
        np.testing.assert_allclose(engine(x), x @ weight, rtol=1e-3, atol=1e-3)
        engine.save(tmp_path / "m.plan")
    with dt.load(tmp_path / "m.plan") as loaded:
        np.testing.assert_allclose(loaded(x), x @ weight, rtol=1e-3, atol=1e-3)


def test_no_room_for_large_weights_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from dovetail.build import builder

    def refuse(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(builder, "write_plan", refuse)
    monkeypatch.setattr(builder, "_MAPPED_BYTES", 0)
    node = helper.make_node("Relu", ["x"], ["y"])
    with pytest.raises(dt.ResourceError, match="no room"):
        dt.compile(_model([node], [_port("x", ["n"])], [_port("y", ["n"])], []))


def test_a_real_signal_without_parts() -> None:
    """What exporters write for STFT: the signal has two dimensions."""
    weights = [
        numpy_helper.from_array(np.int64(4), "step"),
        numpy_helper.from_array(np.hanning(8).astype(np.float32), "w"),
    ]
    node = helper.make_node("STFT", ["x", "step", "w"], ["y"])
    model = _model([node], [_port("x", ["n", "time"])], [_port("y", ["n", None, None, 2])], weights)
    x = RNG.standard_normal((2, 40)).astype(np.float32)
    with dt.compile(model, providers=["cpu"]) as engine:
        np.testing.assert_allclose(engine(x), _reference(model, x=x)[0], atol=1e-4)
