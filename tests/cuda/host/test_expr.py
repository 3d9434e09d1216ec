"""Equal expressions are one object, and others are not."""

from __future__ import annotations

from dovetail_cuda.lower.expr import Load, apply, both, literal, load, walk, within
from dovetail_cuda.lower.index import Index


def test_equal_expressions_are_one_object() -> None:
    index = Index.variable("i", 8)
    first, second = (
        apply("{0} + {1}", load("x", index, None, "float32"), literal(1, "float32"), dtype="float32") for _ in "ab"
    )
    assert first is second
    assert literal(0.0, "float32") is not literal(-0.0, "float32")
    assert literal(1, "int32") is not literal(1, "bool")


def test_a_condition_that_always_holds_is_none() -> None:
    index = Index.variable("i", 8)
    assert within(index, 0, 8) is None
    assert within(index, 0, 7) is not None
    assert both(None, None) is None


def test_what_is_needed_comes_first() -> None:
    x = load("x", Index.variable("i", 8), None, "float32")
    total = apply("{0} * {1}", apply("tl.exp({0})", x, dtype="float32"), x, dtype="float32")
    order = list(walk(total))
    assert isinstance(order[0], Load)
    assert order[-1] is total
    assert len(order) == 3
