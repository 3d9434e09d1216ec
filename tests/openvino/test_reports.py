"""What plans tell of the nodes that OpenVINO compiled: layers, links, shapes, kernels and work."""

from __future__ import annotations

from typing import Any

import dovetail as dt
from tests.support.precision_models import make_image_network

SHAPE = (4, 3, 24, 24)


def _nodes() -> list[Any]:
    engine = dt.compile(make_image_network(), providers=["openvino", "cpu"], shapes={"x": SHAPE})
    (step,) = engine.manifest.programs[0].steps
    assert step.partition is not None
    return list(step.partition.report.nodes)


def test_every_layer_is_found_in_a_node_that_runs() -> None:
    nodes = _nodes()
    layers = [layer for node in nodes for layer in node.layers]
    assert {"c1", "c2", "c3", "c4", "c5", "sum", "pool", "gap", "head/fc"} <= set(layers)
    fused = next(node for node in nodes if "c1" in node.layers)
    assert "r1" in fused.layers
    assert fused.made_by == "openvino"
    assert fused.tactic
    assert fused.flops is not None
    assert fused.flops >= 2 * 4 * 16 * 12 * 12 * 27


def test_nodes_are_linked_from_the_input_to_the_output() -> None:
    nodes = _nodes()
    assert any(0 in node.reads for node in nodes)
    assert any(0 in node.writes for node in nodes)
    assert all(each < number for number, node in enumerate(nodes) for each in node.inputs)
    reached: set[int] = set()
    for number, node in enumerate(nodes):
        if 0 in node.reads or reached & set(node.inputs):
            reached.add(number)
    assert any(0 in nodes[number].writes for number in reached)


def test_types_shapes_and_bytes_are_known() -> None:
    last = next(node for node in _nodes() if "head/fc" in node.layers)
    assert (last.dtype, last.shape[-1]) == ("float32", 10)
    assert last.bytes is not None
    assert last.bytes >= 4 * (32 * 10 + 4 * 10)
