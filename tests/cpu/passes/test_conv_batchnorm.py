"""Convolution and batch normalization in one: the same numbers, one node less, and only where it is allowed.

The numbers come from the reference kernels: onnx's own evaluator has no grouped ConvTranspose, and at opset 9 it mixes
the statistics of the batch into a normalization.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from dovetail.network.importer.importer import import_model
from dovetail.passes import standard_passes
from dovetail.passes.base import run_passes
from dovetail.passes.clone import clone_model
from dovetail.passes.fusions.conv_batchnorm import ConvBatchNorm
from dovetail.provider.loader import get_provider
from dovetail.provider.origins import find_layers, find_passes
from tests.support.single_kernels import load_kernel

CHANNELS = 6


def make(
    op: str = "Conv",
    *,
    groups: int = 1,
    bias: bool = True,
    dtype: Any = np.float32,
    spatial: int = 2,
    epsilon: float | None = 1e-3,
    opset: int = 21,
    extra: list[onnx.NodeProto] | None = None,
    outputs: tuple[str, ...] = ("y",),
    **norm: Any,
) -> ir.Model:
    chance = np.random.default_rng(5)
    inputs = 4 if groups in (1, 2) else groups
    first, second = (CHANNELS, inputs // groups) if op == "Conv" else (inputs, CHANNELS // groups)
    weights: dict[str, Any] = {"w": chance.standard_normal((first, second, *[3] * spatial))}
    weights |= {name: chance.standard_normal(CHANNELS) for name in ("b", "gamma", "beta", "mean")}
    weights["var"] = chance.uniform(0.5, 2, CHANNELS)
    attributes: dict[str, Any] = {} if epsilon is None else {"epsilon": epsilon}
    nodes = [
        helper.make_node(
            op, ["x", "w", "b"] if bias else ["x", "w"], ["t"], "conv", group=groups, strides=[2] * spatial
        ),
        helper.make_node(
            "BatchNormalization", ["t", "gamma", "beta", "mean", "var"], ["y"], "norm", **attributes, **norm
        ),
        *(extra or []),
    ]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kind, ["N", inputs, *[7] * spatial])],
        [helper.make_tensor_value_info(name, kind, None) for name in outputs],
        initializer=[numpy_helper.from_array(np.asarray(array, dtype), name) for name, array in weights.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return import_model(proto)


def run(model: ir.Model) -> list[Any]:
    value = model.graph.inputs[0]
    assert value.dtype is not None
    shape = [dim if isinstance(dim, int) else 2 for dim in value.shape or ()]
    arrays: dict[ir.Value, Any] = {value: np.random.default_rng(6).standard_normal(shape).astype(value.dtype.numpy())}
    for constant in model.graph.initializers.values():
        assert constant.const_value is not None
        arrays[constant] = constant.const_value.numpy()
    provider = get_provider("cpu")
    for node in model.graph:
        attributes = {name: attribute.value for name, attribute in node.attributes.items()}
        given = [None if each is None else arrays[each] for each in node.inputs]
        types = [None if array is None else array.dtype.name for array in given]
        opset, count = model.opset_imports[""], len(node.outputs)
        step = load_kernel(provider, node.op_type, opset, attributes, types, num_outputs=count)
        result = step(*given)
        arrays[node.outputs[0]] = result[0] if isinstance(result, tuple) else result
    return [arrays[output] for output in model.graph.outputs]


def ops(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def fold(model: ir.Model, *, tolerance: float = 1e-5, **options: Any) -> list[str]:
    before = clone_model(model)
    result = run_passes(model, [ConvBatchNorm(**options)], check=True)
    for first, second in zip(run(before), run(model), strict=True):
        np.testing.assert_allclose(first, second, rtol=tolerance, atol=tolerance)
    return result.changed


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("bias", [False, True])
def test_the_numbers_stay(op: str, groups: int, bias: bool) -> None:
    model = make(op, groups=groups, bias=bias)
    assert fold(model) == ["conv_batchnorm: folded 'norm' into 'conv'"]
    assert ops(model) == [op]
    assert [value.name for value in model.graph.outputs] == ["y"]
    node = model.graph[0]
    assert node.name == "conv"
    assert node.attributes["group"].as_int() == groups
    assert (find_layers(node), find_passes(node)) == (["conv", "norm"], ["conv_batchnorm"])
    assert [value.name for value in node.inputs if value is not None] == ["x", "w_folded", "w_folded_bias"]


@pytest.mark.parametrize(("spatial", "opset", "epsilon"), [(1, 21, None), (3, 21, 0.1), (2, 9, 1e-5), (2, 14, 1e-5)])
def test_other_forms(spatial: int, opset: int, epsilon: float | None) -> None:
    model = make(spatial=spatial, opset=opset, epsilon=epsilon)
    assert len(fold(model)) == 1
    assert ops(model) == ["Conv"]


def test_depthwise() -> None:
    model = make(groups=CHANNELS)
    assert len(fold(model)) == 1


def test_half_precision_keeps_its_type() -> None:
    model = make(dtype=np.float16)
    assert len(fold(model, tolerance=3e-2)) == 1
    assert model.graph.initializers["w_folded"].dtype == ir.DataType.FLOAT16
    assert model.graph.outputs[0].dtype == ir.DataType.FLOAT16


@pytest.mark.parametrize("kept", ["w", "b", "gamma", "beta", "mean", "var"])
def test_weights_to_keep_are_not_folded(kept: str) -> None:
    model = make()
    assert fold(model, keep=frozenset([kept])) == []
    assert ops(model) == ["Conv", "BatchNormalization"]


def test_a_second_reader_keeps_both_nodes() -> None:
    model = make(extra=[helper.make_node("Relu", ["t"], ["z"])], outputs=("y", "z"))
    assert fold(model) == []


def test_an_output_in_between_keeps_both_nodes() -> None:
    model = make(outputs=("y", "t"))
    assert fold(model) == []


def test_training_is_left_alone() -> None:
    model = make()
    model.graph[1].attributes["training_mode"] = ir.AttrInt64("training_mode", 1)
    assert ConvBatchNorm()(model).changed == []


def test_weights_that_are_computed_are_left_alone() -> None:
    model = make()
    x = model.graph.inputs[0]
    computed = ir.Node("", "Identity", [model.graph.initializers["gamma"]], num_outputs=1, name="id")
    model.graph.insert_before(model.graph[0], computed)
    model.graph[2].replace_input_with(1, computed.outputs[0])
    assert ConvBatchNorm()(model).changed == []
    assert x.name == "x"


def test_weights_of_another_size_are_left_alone() -> None:
    model = make()
    model.graph.initializers["gamma"].const_value = ir.tensor(np.ones(CHANNELS + 1, np.float32), name="gamma")
    assert ConvBatchNorm()(model).changed == []


def test_an_old_normalization_is_left_alone() -> None:
    model = make()
    model.opset_imports[""] = 7
    assert ConvBatchNorm()(model).changed == []


def test_shared_weights_are_folded_for_each_reader() -> None:
    again = [
        helper.make_node("Conv", ["x", "w"], ["t2"], "conv2", group=1, strides=[2, 2]),
        helper.make_node("BatchNormalization", ["t2", "gamma", "beta", "var", "var"], ["z"], "norm2"),
    ]
    model = make(extra=again, outputs=("y", "z"))
    assert len(fold(model)) == 2
    assert {"w_folded", "w_folded_2"} <= set(model.graph.initializers)


def test_notes_survive() -> None:
    model = make()
    conv, norm = list(model.graph)
    conv.metadata_props["dovetail.layer"] = "stem"
    norm.metadata_props["other"] = "kept"
    conv.meta["dovetail.key"] = marker = object()
    norm.outputs[0].metadata_props["note"] = "out"
    fold(model)
    (node,) = model.graph
    assert node.metadata_props["dovetail.layer"] == "stem"
    assert node.metadata_props["other"] == "kept"
    assert node.meta["dovetail.key"] is marker
    assert node.outputs[0].metadata_props["note"] == "out"


def test_the_standard_passes_leave_one_node_and_its_weights() -> None:
    model = make()
    before = clone_model(model)
    result = run_passes(model, standard_passes(keep=frozenset()), check=True)
    assert ops(model) == ["Conv"]
    assert sorted(model.graph.initializers) == ["w_folded", "w_folded_bias"]
    assert "dead_code: removed weights 'gamma'" in result.changed
    np.testing.assert_allclose(run(before)[0], run(model)[0], rtol=1e-5, atol=1e-5)
    kept = clone_model(before)
    run_passes(kept, standard_passes(keep=frozenset(before.graph.initializers)), check=True)
    assert ops(kept) == ["Conv", "BatchNormalization"]
    assert sorted(kept.graph.initializers) == sorted(before.graph.initializers)


def test_in_a_body() -> None:
    inner = make()
    proto = ir.to_proto(inner)
    branch = onnx.GraphProto()
    branch.CopyFrom(proto.graph)
    del branch.input[:]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4, 7, 7])
    c = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    z = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
    node = helper.make_node("If", ["c"], ["z"], then_branch=branch, else_branch=branch)
    graph = helper.make_graph([node], "outer", [x, c], [z])
    model = import_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=8))
    changed = run_passes(model, [ConvBatchNorm()], check=True).changed
    assert len(changed) == 2
