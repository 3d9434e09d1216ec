"""Maps at the border of a partition: they come out of a session, and never go in."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail as dt
from dovetail.build.assign.layers import NodeLayer
from dovetail.network.importer.importer import import_model
from dovetail.provider.interfaces import Claim
from dovetail.providers.onnxruntime.capability import claim_node

FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
ML = "ai.onnx.ml"
WEIGHT = np.arange(6, dtype=np.float32).reshape(3, 2) / 8


def _model(nodes: Any, inputs: Any, outputs: Any, constants: Any = ()) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "maps", inputs, outputs, list(constants))
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(ML, 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def _map(key: int, element: int) -> onnx.TypeProto:
    return helper.make_map_type_proto(key, helper.make_tensor_type_proto(element, None))


def _scored() -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["s"]),
        helper.make_node("ZipMap", ["s"], ["y"], domain=ML, classlabels_int64s=[2, 1]),
        helper.make_node("Relu", ["s"], ["z"]),
    ]
    x, z = (helper.make_tensor_value_info(name, FLOAT, ["n", size]) for name, size in (("x", 3), ("z", 2)))
    y = helper.make_value_info("y", helper.make_sequence_type_proto(_map(INT64, FLOAT)))
    return _model(nodes, [x], [z, y], [numpy_helper.from_array(WEIGHT, "w")])


def _claims(model: onnx.ModelProto) -> dict[str, Claim]:
    ready = import_model(model)
    return {node.op_type: claim_node(NodeLayer(node, "onnxruntime", ready.opset_imports)) for node in ready.graph}


def test_maps_come_out() -> None:
    assert all(claim.taken for claim in _claims(_scored()).values())


@pytest.mark.parametrize(
    ("op", "kind", "attributes"),
    [
        ("DictVectorizer", _map(STRING, FLOAT), {"string_vocabulary": ["a"]}),
        ("DictVectorizer", _map(INT64, STRING), {"int64_vocabulary": [1]}),
        ("CastMap", _map(INT64, FLOAT), {}),
    ],
)
def test_no_map_goes_in(op: str, kind: onnx.TypeProto, attributes: dict[str, Any]) -> None:
    node = helper.make_node(op, ["m"], ["y"], domain=ML, **attributes)
    (claim,) = _claims(_model([node], [helper.make_value_info("m", kind)], [onnx.ValueInfoProto(name="y")])).values()
    assert not claim.taken
    assert claim.reason.startswith("map(")
    assert claim.reason.endswith("values cannot be handed to ONNX Runtime")


def test_weights_before_maps_are_replaced(tmp_path: Any) -> None:
    """A partition whose weights may change is stored as it is, and has no types of maps either."""
    config = dt.BuilderConfig()
    config.set_flag(dt.BuilderFlag.REFIT)
    dt.compile(_scored(), config=config).save(tmp_path / "a.plan")
    x = np.ones((1, 3), np.float32)
    with dt.load(tmp_path / "a.plan") as engine:
        assert engine(x)["y"] == [{1: 1.125, 2: 0.75}]
        refitter = dt.Refitter(engine)
        refitter.set_named_weights("w", WEIGHT * 2)
        assert refitter.refit_cuda_engine()
        results = engine(x)
        assert results["y"] == [{1: 2.25, 2: 1.5}]
        assert results["z"].tolist() == [[1.5, 2.25]]
