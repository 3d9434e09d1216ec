"""The kernel route: one kernel a node, with the CPU's results, whatever attributes, weights and inputs it has."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto

import dovetail as dt
from onnxruntime_ep_dovetail.kernels.impl import KernelImpl
from onnxruntime_ep_dovetail.kernels.route import KernelRoute
from tests.support.ort_ep import EP, reference_session, session_options
from tests.support.ort_models import make_model, node, tensor

pytestmark = pytest.mark.versions

CPU = "CPUExecutionProvider"
Open = Callable[..., Any]
RNG = np.random.default_rng(5)


def _floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """One operator: its inputs in order, empty for one that is left out; those among the weights are no inputs."""

    op: str
    inputs: Sequence[str]
    feeds: dict[str, Any]
    weights: dict[str, Any] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: Sequence[str] = ("y",)
    domain: str = ""
    kind: int = TensorProto.FLOAT

    def model(self) -> onnx.ModelProto:
        """The model of the node, with sizes that are not fixed."""
        inputs = [
            tensor(
                name, [f"{name}{axis}" for axis in range(array.ndim)], onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
            )
            for name, array in self.feeds.items()
        ]
        made = node(self.op, self.inputs, self.outputs, domain=self.domain, **self.attributes)
        outputs = [tensor(name, None, self.kind) for name in self.outputs if name]
        return make_model([made], inputs, outputs, self.weights, domains=[self.domain] if self.domain else [])


IMAGE = _floats(1, 3, 6, 6)
CASES = {
    "int attribute": Case("Softmax", ["x"], {"x": _floats(2, 3)}, attributes={"axis": 0}),
    "float attribute": Case("LeakyRelu", ["x"], {"x": _floats(4)}, attributes={"alpha": 0.25}),
    "string attribute": Case("Gelu", ["x"], {"x": _floats(5)}, attributes={"approximate": "tanh"}),
    "ints attribute": Case("Transpose", ["x"], {"x": _floats(2, 3, 4)}, attributes={"perm": [2, 0, 1]}),
    "tensor attribute": Case(
        "ConstantOfShape",
        ["s"],
        {"s": np.array([2, 3])},
        attributes={"value": onnx.helper.make_tensor("value", TensorProto.FLOAT, [1], [1.5])},
    ),
    "two outputs": Case("Split", ["x", "s"], {"x": _floats(5, 2)}, {"s": np.array([2, 3])}, outputs=("y", "z")),
    "weights": Case("Conv", ["x", "w", "b"], {"x": IMAGE}, {"w": _floats(4, 3, 3, 3), "b": _floats(4)}),
    "weights first": Case("MatMul", ["w", "x"], {"x": _floats(4, 2)}, {"w": _floats(3, 4)}),
    "weights between": Case(
        "Where", ["c", "w", "x"], {"c": np.array([True, False]), "x": _floats(2)}, {"w": _floats(2)}
    ),
    "left out": Case("Clip", ["x", "", "m"], {"x": _floats(6), "m": np.array(0.1, np.float32)}),
    "left out output": Case("Dropout", ["x"], {"x": _floats(3)}, outputs=("y",)),
    "shape from values": Case("Reshape", ["x", "s"], {"x": _floats(2, 6), "s": np.array([3, -1])}),
    "shape from the run": Case("NonZero", ["x"], {"x": np.array([[1.0, 0, 2]], np.float32)}, kind=TensorProto.INT64),
    "variadic": Case(
        "Concat", ["a", "b", "c"], {n: _floats(2, i + 1) for i, n in enumerate("abc")}, attributes={"axis": 1}
    ),
    "scalar": Case("Add", ["x", "z"], {n: np.array(2, np.float32) for n in "xz"}),
    "empty": Case("Neg", ["x"], {"x": np.zeros((0, 3), np.float32)}),
    "another type": Case(
        "Cast", ["x"], {"x": _floats(4)}, attributes={"to": TensorProto.DOUBLE}, kind=TensorProto.DOUBLE
    ),
    "another domain": Case("FastGelu", ["x"], {"x": _floats(2, 4)}, domain="com.microsoft"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_node_gives_what_the_cpu_gives(case: Case, dovetail_session: Open, assigned: Open) -> None:
    model = case.model()
    session = dovetail_session(model, claim="all", route="kernels")
    assert assigned(session) == {EP: [case.op]}
    expected = reference_session(model).run(None, case.feeds)
    for _ in range(2):
        for ours, theirs in zip(session.run(None, case.feeds), expected, strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(
    ort.__version__.startswith("1.24"), reason="ONNX Runtime gives kernels no list of texts before 1.25"
)
def test_lists_of_texts_are_read(dovetail_session: Open, assigned: Open) -> None:
    weights = {"w": _floats(1, 8, 2), "r": _floats(1, 8, 2)}
    activations = {"hidden_size": 2, "activations": ["Sigmoid", "Relu", "Tanh"]}
    case = Case("LSTM", ["x", "w", "r"], {"x": _floats(3, 1, 2)}, weights, activations)
    session = dovetail_session(case.model(), claim="all", route="kernels")
    assert assigned(session) == {EP: ["LSTM"]}
    expected = reference_session(case.model()).run(None, case.feeds)[0]
    np.testing.assert_allclose(session.run(None, case.feeds)[0], expected, rtol=1e-5, atol=1e-6)


def test_shapes_may_change_between_runs(dovetail_session: Open) -> None:
    model = CASES["weights"].model()
    session, reference = dovetail_session(model, claim="all", route="kernels"), reference_session(model)
    for size in (6, 9, 6):
        feeds = {"x": _floats(2, 3, size, size)}
        np.testing.assert_allclose(session.run(None, feeds)[0], reference.run(None, feeds)[0], rtol=1e-5, atol=1e-5)


def test_outputs_that_nobody_reads_are_not_made(dovetail_session: Open) -> None:
    weights = {"w": _floats(1, 6, 2), "r": _floats(1, 6, 2)}
    case = Case("GRU", ["x", "w", "r"], {"x": _floats(3, 1, 2)}, weights, {"hidden_size": 2}, ("", "y"))
    session = dovetail_session(case.model(), claim="all", route="kernels")
    expected = reference_session(case.model()).run(None, case.feeds)[0]
    np.testing.assert_allclose(session.run(None, case.feeds)[0], expected, rtol=1e-5, atol=1e-6)


def test_what_has_no_kernel_is_compiled_where_tensors_are_its_border(dovetail_session: Open, assigned: Open) -> None:
    split, join = node("SplitToSequence", ["a"], ["q"], axis=0), node("ConcatFromSequence", ["q"], ["b"], axis=0)
    nodes = [node("Relu", ["x"], ["a"]), split, join, node("Neg", ["b"], ["y"])]
    model = make_model(nodes, [tensor("x", ["N", 2])], [tensor("y", None)])
    session = dovetail_session(model, claim="all", route="kernels")
    groups = [[one.op_type for one in part.get_nodes()] for part in session.get_provider_graph_assignment_info()]
    assert sorted(groups) == [["Neg"], ["Relu"], ["SplitToSequence", "ConcatFromSequence"]]
    np.testing.assert_array_equal(session.run(None, {"x": np.ones((3, 2), np.float32)})[0], -np.ones((3, 2)))
    others = dovetail_session(model, claim="all", route="kernels", exclude="ConcatFromSequence", fallback=True)
    assert assigned(others) == {EP: ["Neg", "Relu"], CPU: ["ConcatFromSequence", "SplitToSequence"]}


@dt.layer("KernelsTwice")
def _twice(x: Any) -> Any:
    return x + x


def test_layers_of_plugins_are_compiled_among_kernels(dovetail_session: Open, assigned: Open) -> None:
    domain = "dovetail.plugins"
    custom = [node("KernelsTwice", [a], [b], domain=domain) for a, b in (("a", "b"), ("b", "c"))]
    nodes = [node("Relu", ["x"], ["a"]), *custom, node("Neg", ["c"], ["y"])]
    model = make_model(nodes, [tensor("x", ["N"])], [tensor("y", ["N"])], domains=[domain])
    session = dovetail_session(model, claim="all", route="kernels")
    groups = [[one.op_type for one in part.get_nodes()] for part in session.get_provider_graph_assignment_info()]
    assert sorted(groups) == [["KernelsTwice", "KernelsTwice"], ["Neg"], ["Relu"]]
    assert session.run(None, {"x": np.array([1, -1], np.float32)})[0].tolist() == [-4.0, 0.0]
    by_default = dovetail_session(model, route="kernels")
    assert assigned(by_default) == {EP: ["KernelsTwice", "KernelsTwice"], CPU: ["Neg", "Relu"]}


def _count_builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    built: list[str] = []
    build = KernelRoute._build

    def note(self: KernelRoute, kernel: Any) -> Any:
        built.append(kernel.operator.op)
        return build(self, kernel)

    monkeypatch.setattr(KernelRoute, "_build", note)
    return built


def test_equal_nodes_share_an_engine(dovetail_session: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    built = _count_builds(monkeypatch)
    names = ["x", "a", "b", "c", "y"]
    nodes = [node("Tanh", [one], [other]) for one, other in pairwise(names)]
    nodes[2] = node("LeakyRelu", ["b"], ["c"], alpha=0.5)
    model = make_model(nodes, [tensor("x", [4])], [tensor("y", [4])])
    session = dovetail_session(model, claim="all", route="kernels")
    assert sorted(built) == ["LeakyRelu", "Tanh"]
    x = _floats(4)
    np.testing.assert_allclose(
        session.run(None, {"x": x})[0], reference_session(model).run(None, {"x": x})[0], rtol=1e-6
    )


def test_nodes_with_weights_have_engines_of_their_own(dovetail_session: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    built = _count_builds(monkeypatch)
    weights = {"v": _floats(3, 3), "w": _floats(3, 3)}
    nodes = [node("MatMul", ["x", "v"], ["a"]), node("MatMul", ["a", "w"], ["y"])]
    model = make_model(nodes, [tensor("x", [2, 3])], [tensor("y", [2, 3])], weights)
    session = dovetail_session(model, claim="all", route="kernels")
    assert built == ["MatMul", "MatMul"]
    x = _floats(2, 3)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], x @ weights["v"] @ weights["w"], rtol=1e-5)


def test_weights_that_the_engine_has_are_given_up(dovetail_session: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, bool]] = []
    ask = KernelImpl.pre_pack_weight

    def note(self: KernelImpl, tensor: int, index: int, allocator: int, cache: int, is_packed: int) -> None:
        ask(self, tensor, index, allocator, cache, is_packed)
        seen.append((index, ctypes.c_bool.from_address(is_packed).value))

    monkeypatch.setattr(KernelImpl, "pre_pack_weight", note)
    for name in ("weights", "weights first"):
        session = dovetail_session(CASES[name].model(), claim="all", route="kernels")
        session.run(None, CASES[name].feeds)
    assert seen == [(1, True), (2, True), (0, False)], "a weight before an input is where a run looks"


def test_a_failing_run_says_why_and_the_next_one_works(dovetail_session: Open) -> None:
    model = make_model([node("Add", ["x", "z"], ["y"])], [tensor("x", ["N"]), tensor("z", ["M"])], [tensor("y", None)])
    session = dovetail_session(model, claim="all", route="kernels")
    two, three = np.ones(2, np.float32), np.ones(3, np.float32)
    for _ in range(2):
        with pytest.raises(Exception, match="Add"):
            session.run(None, {"x": two, "z": three})
        assert session.run(None, {"x": two, "z": two})[0].tolist() == [2.0, 2.0]


def test_without_optimisations_the_file_s_nodes_run(dovetail_session: Open, assigned: Open) -> None:
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Add", ["a", "b"], ["y"]), node("Identity", ["k"], ["z"])]
    weights = {"w": _floats(3, 2), "b": _floats(2), "k": _floats(2)}
    model = make_model(nodes, [tensor("x", ["N", 3])], [tensor("y", ["N", 2]), tensor("z", [2])], weights)
    options = session_options(fallback=False)
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = dovetail_session(model, options=options, claim="all", route="kernels")
    assert assigned(session) == {EP: ["Add", "Identity", "MatMul"]}
    x = _floats(4, 3)
    y, z = session.run(None, {"x": x})
    np.testing.assert_allclose(y, x @ weights["w"] + weights["b"], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(z, weights["k"])
