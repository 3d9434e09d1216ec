"""The order of dimensions in which values lie: as their readers want it, else as what they are made of."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from dovetail_cuda.graph.layout import can_read, choose_order
from dovetail_cuda.lower.images import NHWC_DOMAIN
from dovetail_cuda.lower.indexing import transpose_to
from dovetail_cuda.lower.tensors import make_buffer, make_constant
from tests.cuda.images import HEAD

LAST = (0, 2, 3, 1)
PLAIN = (0, 1, 2, 3)


def _value(reader: str) -> ir.Value:
    """A value with one reader, or none that is in the graph."""
    text = f"(float[1,8,4,5] x, float[8,8,1,1] w, float[5,5] m) => (float[1,8,4,5] y) {{ v = Neg(x) {reader} }}"
    graph = ir.from_proto(onnx.parser.parse_model(HEAD + text)).graph
    return graph[0].outputs[0]


@pytest.mark.parametrize(
    ("reader", "order", "expected"),
    [
        ("y = Conv(v, w)", PLAIN, LAST),
        ("y = MaxPool<kernel_shape=[1,1]>(v)", PLAIN, LAST),
        ("y = MatMul(v, m)", LAST, PLAIN),
        ("y = Exp(v)", LAST, LAST),
        ("y = Exp(v)", PLAIN, PLAIN),
        ("y = Exp(v)", (0, 1, 3, 2), (0, 1, 3, 2)),
    ],
)
def test_readers_or_else_what_is_read_decide(reader: str, order: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert choose_order(_value(reader), make_buffer("b", (2, 8, 4, 5), "float32", order)) == expected


def test_the_border_lies_as_the_plan_says() -> None:
    graph = ir.from_proto(
        onnx.parser.parse_model(HEAD + "(float[1,8,4,5] x) => (float[1,8,4,5] y) { y = Neg(x) }")
    ).graph
    assert choose_order(graph.outputs[0], make_buffer("b", (1, 8, 4, 5), "float32", LAST)) == PLAIN


def test_what_is_read_from_nowhere_lies_row_by_row() -> None:
    assert choose_order(_value("y = Exp(v)"), make_constant(1, (1, 8, 4, 5), "float32")) == PLAIN


def test_a_convolution_reads_channels_that_lie_together() -> None:
    rows, conv, pool = make_buffer("b", (2, 6, 5, 8), "float32"), ir.Node("", "Conv", []), ir.Node("", "MaxPool", [])
    assert can_read([conv], transpose_to(rows, (0, 3, 1, 2)))
    assert not can_read([conv], rows)
    assert not can_read([conv, pool], transpose_to(rows, (0, 3, 1, 2)))


def test_a_convolution_with_its_channels_last_reads_rows() -> None:
    rows, conv = make_buffer("b", (2, 6, 5, 8), "float32"), ir.Node(NHWC_DOMAIN, "Conv", [])
    assert can_read([conv], rows)
    assert not can_read([conv], transpose_to(rows, (0, 3, 1, 2)))
    assert not can_read([conv, ir.Node("", "Conv", [])], rows)
