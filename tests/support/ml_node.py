"""One node of ai.onnx.ml, run by the kernel of the ``cpu`` provider and by ONNX Runtime, and random trees for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels import load_kernels
from dovetail.providers.cpu.registry import registry

__all__ = ["ML", "check_ml", "make_trees", "run_ml", "run_ml_ort"]

ML = "ai.onnx.ml"


def _make_node(op: str, attributes: Mapping[str, Any], inputs: int, outputs: int) -> onnx.NodeProto:
    names = [f"x{index}" for index in range(inputs)], [f"y{index}" for index in range(outputs)]
    return helper.make_node(op, *names, domain=ML, **attributes)


def _plain(attribute: onnx.AttributeProto) -> Any:
    """An attribute as it comes out of a file: floats rounded to single precision, tensors as arrays."""
    value = helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, int | float):
        return value
    return tuple(item.decode() if isinstance(item, bytes) else item for item in value)


def run_ml(
    op: str, inputs: Sequence[Any], attributes: Mapping[str, Any], *, outputs: int = 1, opset: int = 3
) -> tuple[Any, ...]:
    """The outputs of the kernel."""
    load_kernels()
    kernel = registry.find(op, ML, opset)
    assert kernel is not None, f"no kernel for {op} at opset {opset}"
    node = _make_node(op, attributes, len(inputs), outputs)
    result = kernel.bind({item.name: _plain(item) for item in node.attribute}, outputs)(*inputs)
    return result if isinstance(result, tuple) else (result,)


def run_ml_ort(
    op: str, inputs: Sequence[Array], attributes: Mapping[str, Any], *, outputs: int = 1, opset: int = 3
) -> list[Any]:
    """The outputs of ONNX Runtime."""
    described = [
        helper.make_tensor_value_info(f"x{index}", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for index, x in enumerate(inputs)
    ]
    graph = helper.make_graph(
        [_make_node(op, attributes, len(inputs), outputs)],
        op,
        described,
        [onnx.ValueInfoProto(name=f"y{index}") for index in range(outputs)],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(ML, opset)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    results: list[Any] = session.run(None, {f"x{index}": x for index, x in enumerate(inputs)})
    return results


def check_ml(
    op: str, inputs: Sequence[Array], attributes: Mapping[str, Any], *, outputs: int = 1, opset: int = 3
) -> None:
    """Assert that the kernel gives what ONNX Runtime gives: shapes, types and values."""
    ours = run_ml(op, inputs, attributes, outputs=outputs, opset=opset)
    theirs = run_ml_ort(op, inputs, attributes, outputs=outputs, opset=opset)
    for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if isinstance(other, list):
            assert [dict(entries) for entries in one] == other
            continue
        assert (one.dtype, one.shape) == (other.dtype, other.shape), f"{op} output {index}"
        if other.dtype == object:
            assert one.tolist() == other.tolist()
        else:
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4, err_msg=f"{op} output {index}")


def make_trees(
    seed: int, *, trees: int = 3, depth: int = 3, features: int = 4, modes: Sequence[str] = ("BRANCH_LEQ",)
) -> tuple[dict[str, Any], list[tuple[int, int]]]:
    """The node attributes of random full trees, and the (tree, node) ids of their leaves."""
    draw = np.random.default_rng(seed)
    inner = 2**depth - 1
    places = [(tree, node) for tree in range(trees) for node in range(2 * inner + 1)]
    is_leaf = [node >= inner for _, node in places]
    attributes = {
        "nodes_treeids": [tree for tree, _ in places],
        "nodes_nodeids": [node for _, node in places],
        "nodes_featureids": [0 if leaf else int(draw.integers(features)) for leaf in is_leaf],
        "nodes_modes": ["LEAF" if leaf else str(draw.choice(modes)) for leaf in is_leaf],
        "nodes_values": [0.0 if leaf else float(np.round(draw.normal(), 1)) for leaf in is_leaf],
        "nodes_truenodeids": [0 if leaf else 2 * node + 1 for (_, node), leaf in zip(places, is_leaf, strict=True)],
        "nodes_falsenodeids": [0 if leaf else 2 * node + 2 for (_, node), leaf in zip(places, is_leaf, strict=True)],
        "nodes_missing_value_tracks_true": [int(draw.integers(2)) for _ in places],
    }
    return attributes, [place for place, leaf in zip(places, is_leaf, strict=True) if leaf]
