"""The largest or smallest elements of a row, in order.

Every element is counted: its rank is the number of elements of the row that come before it. Then each place of the
result looks for the element of its rank. That is n^2 comparisons for rows of n elements, without any exchange, so that
equal elements keep their order and results are the same in every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from dovetail_cuda.lower.expr import Expr, apply, literal, position, select
from dovetail_cuda.lower.index import Index
from dovetail_cuda.lower.indexing import find_axis
from dovetail_cuda.lower.operators.gather import gather_elements
from dovetail_cuda.lower.reduce import make_reduced
from dovetail_cuda.lower.registry import registry
from dovetail_cuda.lower.stages import Store, make_staged
from dovetail_cuda.lower.tensors import Lowered, Rows, Tensor, refuse
from dovetail_cuda.lower.types import NUMBERS, is_float

__all__: list[str] = []

_MOST_COMPARISONS: Final = 1 << 34
"""More than this takes longer than another provider does."""
Coordinates = Sequence[Index]


def _comes_before(dtype: str, *, largest: bool) -> str:
    """Triton's text for whether element {0} at {2} comes before element {1} at {3}; no number is larger than all."""
    order = ">" if largest else "<"
    plain = f"({{0}} {order} {{1}}) | (({{0}} == {{1}}) & ({{2}} < {{3}}))"
    if not is_float(dtype):
        return plain
    first, second = "({0} != {0})", "({1} != {1})"
    lead, tail = (first, second) if largest else (second, first)
    return f"({plain}) | ({lead} & ({tail} == 0)) | ({first} & {second} & ({{2}} < {{3}}))"


def _rank(x: Tensor, axis: int, *, largest: bool) -> Lowered:
    """How many elements of its row come before each element."""
    text = _comes_before(x.dtype, largest=largest)

    def pull(at: Coordinates, guard: Expr | None) -> Expr:
        *own, other = at
        rival = x.at((*own[:axis], other, *own[axis + 1 :]), guard)
        is_before = apply(text, rival, x.at(own, guard), position(other), position(own[axis]), dtype="bool")
        return select(is_before, literal(1, "int32"), literal(0, "int32"))

    pairs = Tensor(shape=(*x.shape, x.shape[axis]), dtype="int32", pull=pull)
    return make_reduced(pairs, (x.rank,), lambda rows: rows.reduce("sum", rows.read(pairs)), keep=False)


def _find_ranked(ranks: Tensor, axis: int, count: int) -> Lowered:
    """Where in its row the element of each rank is."""
    shape = (*ranks.shape[:axis], count, *ranks.shape[axis + 1 :])

    def pull(at: Coordinates, guard: Expr | None) -> Expr:
        *own, other = at
        rank = ranks.at((*own[:axis], other, *own[axis + 1 :]), guard)
        is_it = apply("{0} == {1}", rank, position(own[axis], "int32"), dtype="bool")
        return select(is_it, position(other), literal(0, "int64"))

    places = Tensor(shape=(*shape, ranks.shape[axis]), dtype="int64", pull=pull)

    def body(rows: Rows) -> Expr:
        return rows.reduce("sum", rows.read(places))

    return make_reduced(places, (ranks.rank,), body, keep=False)


@registry.register("TopK", since=10, until=10, types={"T": ("float16", "float32", "float64")}, host_inputs=(1,))
def top_k_largest(x: Tensor, k: Any, *, axis: int = -1, num_outputs: int = 2) -> tuple[Lowered, ...]:
    """The largest elements along an axis, and where they are."""
    return top_k(x, k, axis=axis, num_outputs=num_outputs)


@registry.register("TopK", since=11, until=23, types={"T": [t for t in NUMBERS if t != "bfloat16"]}, host_inputs=(1,))
@registry.register("TopK", since=24, types={"T": NUMBERS}, host_inputs=(1,))
def top_k(
    x: Tensor,
    k: Any,
    *,
    axis: int = -1,
    largest: int = 1,
    sorted: int = 1,  # noqa: A002 - ONNX's name
    num_outputs: int = 2,
) -> tuple[Lowered, ...]:
    """The largest or smallest elements along an axis, in order, and where they are; of equal ones the first."""
    axis, count = find_axis(axis, x.rank), int(np.ravel(k)[0])
    if count > x.shape[axis]:
        raise refuse(f"{count} elements are more than the {x.shape[axis]} along axis {axis}")
    if x.count * x.shape[axis] > _MOST_COMPARISONS:
        raise refuse(f"it compares every two elements of a row, and rows of {x.shape[axis]} in {x.shape} are too many")
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])

    def steps(store: Store) -> Sequence[Tensor]:
        stored = x if x.buffer is not None else store("x", x)
        ranks = store("ranks", _rank(stored, axis, largest=bool(largest)))
        places = store("places", _find_ranked(ranks, axis, count))
        return gather_elements(stored, places, axis=axis), places

    return make_staged([(shape, x.dtype), (shape, "int64")], steps)[:num_outputs]
