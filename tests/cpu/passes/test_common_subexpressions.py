"""What is computed twice is computed once, and what only looks the same is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.errors import InternalError
from dovetail.passes.base import run_passes
from dovetail.passes.common_subexpressions import CommonSubexpressions
from tests.support.pass_graphs import check_numbers, make, ops


def merge(text: str, **weights: Any) -> tuple[list[str], list[str]]:
    model = make(text, **weights)
    changed = check_numbers(model, [CommonSubexpressions()], tolerance=None)
    return ops(model), changed


def test_a_chain() -> None:
    body = "a = Neg(x) b = Neg(x) c = Abs(a) d = Abs(b) y = Add(c, d)"
    names, changed = merge(f"g (float[n] x) => (float[n] y) {{ {body} }}")
    assert names == ["Neg", "Abs", "Add"]
    assert changed == [
        "common_subexpressions: merged 'Neg_1' (Neg) into 'Neg'",
        "common_subexpressions: merged 'Abs_1' (Abs) into 'Abs'",
    ]


def test_equal_constants() -> None:
    body = "a = Reshape(x, s) b = Reshape(x, t) c = Neg(a) d = Neg(b) y = Add(c, d)"
    names, changed = merge(
        f"g (float[n, 4] x) => (float[n, 4] y) {{ {body} }}",
        s=np.array([0, 4]),
        t=np.array([0, 4]),
    )
    assert names == ["Reshape", "Neg", "Add"]
    assert "common_subexpressions: merged constant 't' into 's'" in changed


@pytest.mark.parametrize(
    "body",
    [
        "a = Softmax<axis = 0>(x) b = Softmax<axis = 1>(x) y = Add(a, b)",
        "a = Sub(x, z) b = Sub(z, x) y = Add(a, b)",
        "a = Cast<to = 1>(x) b = Cast<to = 11>(x) c = Cast<to = 1>(b) y = Add(a, c)",
    ],
)
def test_what_only_looks_the_same(body: str) -> None:
    names, changed = merge(f"g (float[n, 4] x, float[n, 4] z) => (float[n, 4] y) {{ {body} }}")
    assert len(names) == body.count("=") - body.count("<")
    assert changed == []


def test_random_numbers_are_drawn_each_time() -> None:
    model = make("g (float[4] x) => (float[4] y) { a = RandomNormalLike(x) b = RandomNormalLike(x) y = Add(a, b) }")
    assert run_passes(model, [CommonSubexpressions()], check=True).changed == []


def test_outputs_and_noted_values_stay() -> None:
    names, changed = merge("g (float[4] x) => (float[4] y, float[4] z) { y = Neg(x) z = Neg(x) }")
    assert names == ["Neg", "Neg"]
    assert changed == []
    model = make("g (float[4] x) => (float[4] y) { a = Neg(x) b = Neg(x) y = Add(a, b) }")
    model.graph[1].outputs[0].metadata_props["dovetail.range"] = "-1.0 1.0"
    assert run_passes(model, [CommonSubexpressions()], check=True).changed == []


def test_an_output_can_stand_for_others() -> None:
    names, _ = merge("g (float[4] x) => (float[4] y, float[4] z) { y = Neg(x) b = Neg(x) z = Abs(b) }")
    assert names == ["Neg", "Abs"]


def test_weights_to_keep() -> None:
    model = make(
        "g (float[1] x) => (float[1] y) { a = Add(x, v) b = Add(x, w) y = Mul(a, b) }",
        v=np.float32([2]),
        w=np.float32([2]),
    )
    assert run_passes(model, [CommonSubexpressions(keep=frozenset({"w"}))], check=True).changed == []
    assert set(model.graph.initializers) == {"v", "w"}


def test_several_outputs() -> None:
    body = "a, b = Split<num_outputs = 2>(x) c, d = Split<num_outputs = 2>(x) y = Add(b, d)"
    names, _ = merge(f"g (float[4] x) => (float[2] y) {{ {body} }}")
    assert names == ["Split", "Add"]


def test_bodies_are_merged_each_for_itself() -> None:
    text = """g (float[n] x, bool c) => (float[n] y) { o = Neg(x)
    z = If (c) <then_branch = t () => (float[n] p) { a = Neg(x) b = Neg(x) p = Add(a, b) },
                else_branch = e () => (float[n] q) { q = Neg(x) }> y = Add(o, z) }"""
    model = make(text)
    assert len(check_numbers(model, [CommonSubexpressions()], tolerance=None)) == 1


def test_the_promise_is_checked() -> None:
    model = make("g (float[4] x) => (float[4] y) { a = Neg(x) b = Neg(x) y = Add(a, b) }")
    with pytest.raises(InternalError, match="computed twice"):
        CommonSubexpressions().ensures(model)


@given(
    st.lists(
        st.tuples(st.sampled_from(["Neg", "Abs", "Add", "Mul", "Sub"]), st.integers(0, 30), st.integers(0, 30)),
        min_size=1,
        max_size=14,
    )
)
def test_random_graphs_give_the_same_numbers(steps: list[tuple[str, int, int]]) -> None:
    names, body = ["x", "w", "v"], []
    for index, (op, first, second) in enumerate(steps):
        one, two = names[first % len(names)], names[second % len(names)]
        body.append(f"t{index} = {op}({one})" if op in ("Neg", "Abs") else f"t{index} = {op}({one}, {two})")
        names.append(f"t{index}")
    text = f"g (float[3] x) => (float[3] y) {{ {' '.join(body)} y = Max({', '.join(names[3:])}) }}"
    model = make(text, w=np.float32([1, 2, 3]), v=np.float32([1, 2, 3]))
    check_numbers(model, [CommonSubexpressions()], tolerance=None)
    assert run_passes(model, [CommonSubexpressions()], check=True).changed == []
