"""What providers are told of inputs that are computed of shapes, and of dimensions that only a run tells."""

from __future__ import annotations

from onnx import parser

from dovetail.build.assign.layers import NodeLayer
from dovetail.network.importer.importer import import_model

HEADER = '<ir_version: 10, opset_import: ["" : 21]>\n'


def _layers(text: str) -> dict[str, NodeLayer]:
    model = import_model(parser.parse_model(HEADER + text))
    return {node.op_type: NodeLayer(node, "cpu", model.opset_imports) for node in model.graph}


def test_sizes_that_are_computed_of_shapes_are_told() -> None:
    layers = _layers("""g (float[N,M] x) => (float[a] y) <int64[1] zero = {0}, int64[1] one = {1}>
        { s = Shape(x) n = Gather(s, zero) m = Gather(s, one) c = Mul(n, m) y = Reshape(x, c) }""")
    assert layers["Reshape"].shape_inputs == {1}
    assert layers["Mul"].shape_inputs == {0, 1}
    assert layers["Shape"].shape_inputs == frozenset()


def test_sizes_that_callers_pass_or_data_has_are_no_shapes() -> None:
    layers = _layers("g (float[N] x, int64[1] s) => (float[a] y) { y = Reshape(x, s) }")
    assert layers["Reshape"].shape_inputs == frozenset()
    layers = _layers("""g (float[N] x, float[N] z) => (float[a] y) <int64[1] one = {1}>
        { s = Shape(x) i = Cast<to = 7>(z) t = Add(s, i) y = Tile(x, t) }""")
    assert layers["Tile"].shape_inputs == frozenset()


def test_a_dimension_that_only_a_run_tells_is_marked() -> None:
    text = "g (float[N] x) => (int64[a,b] y, float[N] z) { n = NonZero(x) t = Transpose(n) y = Neg(t) z = Exp(x) }"
    layers = _layers(text)
    first, second = layers["Neg"].input_shapes[0] or ()
    assert str(first).startswith("?")
    assert second == 1
    assert layers["Exp"].input_shapes == [["N"]]
