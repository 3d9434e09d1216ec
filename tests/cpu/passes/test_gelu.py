"""Both forms of GELU, however their factors are ordered, and what is none."""

from __future__ import annotations

import pytest

from dovetail.passes.fusions.base import always
from dovetail.passes.fusions.gelu import GeluFusion
from tests.support.pass_graphs import check_numbers, make, ops

HEADER = "g (float[n, 8] x) => (float[n, 8] y)"
CONSTANTS = """<float half = {0.5}, float one = {1}, float two = {2}, float root = {1.4142135},
float inverse = {0.70710677}, float cube = {3}, float c = {0.044715}, float s = {0.7978845}, float[1] row = {0.5}>"""
ERF = "a = Div(x, root) e = Erf(a) p = Add(e, one)"
TANH = "a = Pow(x, cube) b = Mul(c, a) d = Add(x, b) f = Mul(s, d) e = Tanh(f) p = Add(one, e)"


def fuse(body: str, opset: int = 20, header: str = HEADER) -> tuple[list[str], list[str]]:
    model = make(f"{header} {CONSTANTS} {{ {body} }}", opset)
    changed = check_numbers(model, [GeluFusion(accepts=always)])
    return ops(model), changed


@pytest.mark.parametrize("inner", [ERF, TANH, ERF.replace("Div(x, root)", "Mul(inverse, x)")])
@pytest.mark.parametrize(
    "outer",
    [
        "q = Mul(x, p) y = Mul(q, half)",
        "q = Mul(p, half) y = Mul(x, q)",
        "q = Mul(x, half) y = Mul(q, p)",
        "q = Mul(half, x) y = Mul(p, q)",
        "q = Mul(x, p) y = Div(q, two)",
        "q = Mul(p, row) y = Mul(q, x)",
    ],
)
def test_orders(inner: str, outer: str) -> None:
    names, changed = fuse(f"{inner} {outer}")
    assert names == ["Gelu"]
    assert len(changed) == 1
    assert changed[0].startswith("gelu: fused ")


@pytest.mark.parametrize(
    "inner",
    [
        "a = Mul(x, x) b = Mul(a, x) d = Mul(b, c) f = Add(d, x) h = Mul(f, s) e = Tanh(h) p = Add(e, one)",
        "a = Mul(x, x) b = Mul(c, a) d = Add(one, b) f = Mul(x, s) h = Mul(f, d) e = Tanh(h) p = Add(e, one)",
    ],
)
def test_other_polynomials(inner: str) -> None:
    assert fuse(f"{inner} q = Mul(half, x) y = Mul(q, p)")[0] == ["Gelu"]


@pytest.mark.parametrize(
    "body",
    [
        f"{ERF} q = Mul(x, p) y = Mul(q, two)",
        f"{ERF} q = Mul(x, p) y = Mul(q, x)",
        f"{ERF.replace('root', 'two')} q = Mul(x, p) y = Mul(q, half)",
        f"{ERF.replace('one', 'two')} q = Mul(x, p) y = Mul(q, half)",
        f"{TANH.replace('cube', 'two')} q = Mul(x, p) y = Mul(q, half)",
        "z = Neg(x) " + ERF.replace("Div(x", "Div(z") + " q = Mul(x, p) y = Mul(q, half)",
        f"{ERF} q = Mul(x, p) y = Div(half, q)",
        f"{ERF} y = Mul(p, half)",
    ],
)
def test_what_is_no_gelu(body: str) -> None:
    names, changed = fuse(body)
    assert "Gelu" not in names
    assert changed == []


def test_an_inner_value_that_is_read_elsewhere() -> None:
    names, changed = fuse(f"{ERF} q = Mul(x, p) r = Mul(q, half) y = Add(r, e)")
    assert "Erf" in names
    assert changed == []


def test_an_inner_value_that_is_an_output() -> None:
    header = "g (float[n, 8] x) => (float[n, 8] y, float[n, 8] e)"
    names, changed = fuse(f"{ERF} q = Mul(x, p) y = Mul(q, half)", header=header)
    assert "Erf" in names
    assert changed == []


def test_the_opset_is_raised() -> None:
    model = make(f"{HEADER} {CONSTANTS} {{ {ERF} q = Mul(x, p) z = Mul(q, half) y = Transpose<perm = [0, 1]>(z) }}", 14)
    changed = check_numbers(model, [GeluFusion(accepts=always)])
    assert len(changed) == 1
    assert ops(model) == ["Gelu", "Transpose"]
    assert model.opset_imports[""] == 20


def test_an_opset_that_cannot_be_raised() -> None:
    grid = "float[1, 1, 2, 2] i, float[1, 1, 1, 2] g"
    model = make(
        f"g (float[n, 8] x, {grid}) => (float[n, 8] y, float[1, 1, 1, 1] z) {CONSTANTS} "
        f'{{ {ERF} q = Mul(x, p) y = Mul(q, half) z = GridSample<mode = "bilinear">(i, g) }}',
        16,
    )
    changed = check_numbers(model, [GeluFusion(accepts=always)])
    assert "Erf" in ops(model)
    assert model.opset_imports[""] == 16
    assert len(changed) == 1
    assert "GridSample" in changed[0]
    assert "Gelu needs opset 20" in changed[0]


def test_constants_to_keep() -> None:
    model = make(f"{HEADER} {CONSTANTS} {{ {ERF} q = Mul(x, p) y = Mul(q, half) }}")
    assert check_numbers(model, [GeluFusion(accepts=always, keep=frozenset({"half"}))]) == []


def test_in_a_branch() -> None:
    model = make(
        f"""g (float[n, 8] x, bool c0) => (float[n, 8] y) {CONSTANTS} {{
        y = If (c0) <then_branch = t () => (float[n, 8] u) {{ {ERF} q = Mul(x, p) u = Mul(q, half) }},
                     else_branch = f () => (float[n, 8] v) {{ v = Neg(x) }}> }}"""
    )
    assert len(check_numbers(model, [GeluFusion(accepts=always)])) == 1
    assert [node.op_type for node in model.graph.all_nodes()].count("Gelu") == 1
