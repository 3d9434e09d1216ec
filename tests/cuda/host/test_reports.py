"""What plans tell of the regions that run on CUDA: layers, links, results, ways and work."""

from __future__ import annotations

from typing import Any

import onnx

import dovetail as dt

TEXT = """<ir_version: 10, opset_import: ["": 21]> g (float[8, 16] x) => (float[8, 32] y, float[8, 16] z)
    <float[16, 32] w = {%s}> { a = MatMul(x, w)  b = Relu(a)  y = Neg(b)  c = Exp(x)  z = Add(c, c) }"""


def _nodes() -> list[Any]:
    model = onnx.parser.parse_model(TEXT % ",".join(["0.5"] * 512))
    engine = dt.compile(model, providers=["cuda", "cpu"])
    (step,) = [step for step in engine.manifest.programs[0].steps if step.partition is not None]
    assert step.partition is not None
    return list(step.partition.report.nodes)


def test_a_product_tells_its_result_border_and_bytes(paper: Any) -> None:
    nodes = _nodes()
    product = next(node for node in nodes if "MatMul" in node.op)
    assert (product.dtype, list(product.shape)) == ("float32", [8, 32])
    assert list(product.reads) == [0]
    assert product.bytes == 4 * (8 * 16 + 16 * 32 + 8 * 32)
    assert product.tactic


def test_outputs_are_written_once_and_elements_are_counted(paper: Any) -> None:
    nodes = _nodes()
    assert sorted(at for node in nodes for at in node.writes) == [0, 1]
    elements = next(node for node in nodes if "Exp" in node.op)
    assert elements.flops is not None
    assert elements.flops >= 2 * 8 * 16
    assert elements.bytes == 4 * 2 * 8 * 16
