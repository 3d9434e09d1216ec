"""The lists of passes, switching them off, and that their cost grows with the model and no faster."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser

from dovetail.errors import InternalError, UsageError
from dovetail.passes import PASS_NAMES, fusion_passes, standard_passes
from dovetail.passes.base import Pass, run_passes
from dovetail.passes.fusions.base import FusionPass, always
from tests.support.pass_graphs import make

NONE = frozenset[str]()


def all_passes(**options: object) -> list[Pass]:
    return [*standard_passes(keep=NONE, **options), *fusion_passes(keep=NONE, accepts=always, **options)]  # type: ignore[arg-type]


def test_every_pass_has_a_name_that_switches_it_off() -> None:
    names = {each.name for each in all_passes()}
    assert names == set(PASS_NAMES) - {"layout", "rewrite"}  # which providers ask for, or have of their own
    assert len(set(PASS_NAMES)) == len(PASS_NAMES)
    for name in PASS_NAMES:
        assert {each.name for each in all_passes(off=[name])} == names - {name}
    assert all_passes(off=PASS_NAMES) == []


def test_one_name_may_come_alone() -> None:
    assert "gelu" not in {each.name for each in all_passes(off="gelu")}


@pytest.mark.parametrize(
    "make_list", [lambda off: standard_passes(keep=NONE, off=off), lambda off: all_passes(off=off)]
)
def test_an_unknown_name_lists_those_there_are(make_list: Callable[[list[str]], object]) -> None:
    with pytest.raises(UsageError) as caught:
        make_list(["gelu", "geloo"])
    assert "geloo" in str(caught.value)
    assert all(name in str(caught.value) for name in PASS_NAMES)


def test_functions_must_be_gone() -> None:
    model = make("g (float[4] x) => (float[4] y) { y = Neg(x) }")
    x = ir.Value(name="x")
    graph = ir.Graph([x], [x], nodes=[], opset_imports={"": 20})
    function = ir.Function("custom", "F", graph=graph, attributes=[])
    model.functions[function.identifier()] = function
    for each in all_passes():
        with pytest.raises(InternalError, match="functions must be expanded"):
            each(model)


def test_fusions_check_that_nothing_is_left() -> None:
    text = "g (float[n, 8] x) => (float[n, 8] y) { a = Div(x, r) e = Erf(a) p = Add(e, o) q = Mul(x, p) y = Mul(q, h) }"
    model = make(text, r=np.float32(2**0.5), o=np.float32(1), h=np.float32(0.5))
    gelu = next(each for each in fusion_passes(keep=NONE, accepts=always) if each.name == "gelu")
    assert isinstance(gelu, FusionPass)
    with pytest.raises(InternalError, match="was not fused"):
        gelu.ensures(model)
    gelu(model)
    gelu.ensures(model)


COUNT = 10_000
ROOT = "{x}a = Div({x}, r) {x}e = Erf({x}a) {x}p = Add({x}e, o) {x}q = Mul({x}, {x}p) {y} = Mul({x}q, h)"
PAIR = "{x}q = QuantizeLinear({x}, h, z) {x}d = DequantizeLinear({x}q, h, z)"
KINDS = {
    "elementwise": ("{y} = Mul({x}, h)", 1),
    "gelu": (ROOT, 5),
    "shapes": (
        "{x}s = Shape({x}) {x}r = Reshape({x}, {x}s) {x}t = Transpose({x}r) {x}u = Transpose({x}t) {y} = Neg({x}u)",
        5,
    ),
    "casts": ("{x}c = Cast<to = 11>({x}) {y} = Cast<to = 1>({x}c)", 2),
    "quantized": (f"{PAIR} {{x}}t = Transpose({{x}}d) {{y}} = Transpose({{x}}t)", 4),
    "quantized_and_read": (f"{PAIR} {{y}} = Identity({{x}}d) {{x}}m = Max({{x}}d, {{x}}d)", 4),
    "twins": ("{x}a = Neg({x}) {x}b = Neg({x}) {y} = Add({x}a, {x}b)", 3),
}


def chain(kind: str, count: int) -> ir.Model:
    """A long model; typed by hand, because inferring shapes takes longer than the passes."""
    patterns = list(KINDS.values()) if kind == "mixed" else [KINDS[kind]]
    turns = count * len(patterns) // sum(nodes for _, nodes in patterns)
    steps = itertools.pairwise(["x", *(f"v{index}_" for index in range(turns - 1)), "last"])
    body = " ".join(
        pattern.format(x=one, y=two) for (one, two), (pattern, _) in zip(steps, itertools.cycle(patterns), strict=False)
    )
    constants = "<float r = {1.4142135}, float o = {1}, float h = {0.5}, int8 z = {0}>"
    text = f"g (float[n, 8] x) => (float[n, 8] y) {constants} {{ {body} y = Identity(last) }}"
    model = ir.from_proto(parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]>\n{text}'))
    for index, node in enumerate(model.graph):
        node.name = f"node_{index}"
        _type(node)
    return model


def _type(node: ir.Node) -> None:
    source, value = node.inputs[0], node.outputs[0]
    assert source is not None
    assert source.shape is not None
    if node.op_type == "Shape":
        value.dtype, value.shape = ir.DataType.INT64, ir.Shape([2])
        return
    types = {"QuantizeLinear": ir.DataType.INT8, "DequantizeLinear": ir.DataType.FLOAT}
    to = node.attributes.get("to")
    value.dtype = types.get(node.op_type, source.dtype) if to is None else ir.DataType(to.as_int())
    dims = list(source.shape)
    value.shape = ir.Shape(dims[::-1] if node.op_type == "Transpose" else dims)


@pytest.mark.parametrize("kind", ["mixed", *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS)])
def test_ten_thousand_nodes(kind: str) -> None:
    model = chain(kind, COUNT)
    assert len(model.graph) > COUNT * 0.9
    start = time.process_time()
    run_passes(model, all_passes())
    assert time.process_time() - start < 15  # about a second; a cost that grows with the square takes more
