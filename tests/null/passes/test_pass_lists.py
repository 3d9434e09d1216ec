"""The lists of passes, switching them off, and that their cost grows with the model and no faster."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from dovetail.errors import InternalError, UsageError
from dovetail.passes import PASS_NAMES, fusion_passes, standard_passes
from dovetail.passes.base import Pass, run_passes
from dovetail.passes.fusion import FusionPass, always
from tests.support.pass_graphs import make

NONE = frozenset[str]()


def all_passes(**options: object) -> list[Pass]:
    return [*standard_passes(keep=NONE, **options), *fusion_passes(keep=NONE, accepts=always, **options)]  # type: ignore[arg-type]


def test_every_pass_has_a_name_that_switches_it_off() -> None:
    assert {each.name for each in all_passes()} == set(PASS_NAMES)
    assert len(set(PASS_NAMES)) == len(PASS_NAMES)
    for name in PASS_NAMES:
        assert {each.name for each in all_passes(off=[name])} == set(PASS_NAMES) - {name}
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
KINDS = {
    "elementwise": ("{y} = Mul({x}, h)", 1),
    "gelu": (ROOT, 5),
    "shapes": (
        "{x}s = Shape({x}) {x}r = Reshape({x}, {x}s) {x}t = Transpose({x}r) {x}u = Transpose({x}t) {y} = Neg({x}u)",
        5,
    ),
    "casts": ("{x}c = Cast<to = 11>({x}) {y} = Cast<to = 1>({x}c)", 2),
    "quantized": (
        "{x}q = QuantizeLinear({x}, h, z) {x}d = DequantizeLinear({x}q, h, z) {x}t = Transpose({x}d) {y} = Transpose({x}t)",
        4,
    ),
    "twins": ("{x}a = Neg({x}) {x}b = Neg({x}) {y} = Add({x}a, {x}b)", 3),
}


def chain(kind: str, count: int) -> ir.Model:
    pattern, nodes = KINDS[kind]
    turns = count // nodes
    names = ["x", *(f"v{index}_" for index in range(turns - 1)), "last"]
    body = " ".join(pattern.format(x=one, y=two) for one, two in zip(names, names[1:], strict=False))
    text = f"g (float[n, 8] x) => (float[n, 8] y) {{ {body} y = Identity(last) }}"
    return make(text, r=np.float32(2**0.5), o=np.float32(1), h=np.float32(0.5), z=np.int8(0))


@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand_nodes(kind: str) -> None:
    model = chain(kind, COUNT)
    assert len(model.graph) > COUNT * 0.9
    start = time.process_time()
    run_passes(model, all_passes())
    assert time.process_time() - start < 15
