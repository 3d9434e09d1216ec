"""Einsum: products of several tensors, summed over the indices that the result does not have."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail_cuda.lower.expr import Expr, apply
from dovetail_cuda.lower.index import Index
from dovetail_cuda.lower.reduce import make_reduced
from dovetail_cuda.lower.registry import registry
from dovetail_cuda.lower.tensors import Lowered, Rows, Tensor, refuse
from dovetail_cuda.lower.types import WIDE

__all__: list[str] = []


def _read(equation: str, tensors: Sequence[Tensor]) -> tuple[list[str], str]:
    """The indices of each tensor and of the result, with letters of their own for those an ellipsis stands for."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(tensors) or not all(each.isalpha() or each in ".,->" for each in equation.replace(" ", "")):
        raise refuse(f"no equation for {len(tensors)} tensors: {equation[:100]!a}")
    widest = max((x.rank - len(term.replace("...", "")) for term, x in zip(terms, tensors, strict=True)), default=0)
    hidden = "".join(chr(0x2160 + number) for number in range(widest))
    named = []
    for term, x in zip(terms, tensors, strict=True):
        count = x.rank - len(term.replace("...", ""))
        named.append(term.replace("...", hidden[widest - count :]))
        if len(named[-1]) != x.rank:
            raise refuse(f"the equation has another rank: {equation[:100]!a}")
    letters = "".join(named)
    once = sorted(each for each in set(letters) if letters.count(each) == 1 and each not in hidden)
    return named, right.replace("...", hidden) if arrow else hidden + "".join(once)


@registry.register("Einsum", since=12, types={"T": WIDE})
def einsum(*tensors: Tensor, equation: str) -> Lowered:
    """Products summed over indices."""
    terms, result = _read(equation, tensors)
    sizes: dict[str, int] = {}
    for term, x in zip(terms, tensors, strict=True):
        for letter, size in zip(term, x.shape, strict=True):
            sizes[letter] = max(sizes.get(letter, 1), size)
    summed = [letter for letter in sizes if letter not in result]
    order, dtype = [*result, *summed], tensors[0].dtype

    def pull(at: Sequence[Index], guard: Expr | None) -> Expr:
        places = dict(zip(order, at, strict=True))
        value: Expr | None = None
        for term, x in zip(terms, tensors, strict=True):
            own = [Index() if size == 1 else places[letter] for letter, size in zip(term, x.shape, strict=True)]
            factor = x.at(own, guard)
            value = factor if value is None else apply("{0} * {1}", value, factor, dtype=dtype)
        if value is None:
            raise refuse("there is nothing to multiply")
        return value

    products = Tensor(shape=tuple(sizes[letter] for letter in order), dtype=dtype, pull=pull)
    if not summed:
        return products

    def body(rows: Rows) -> Expr:
        return rows.reduce("sum", rows.read(products))

    return make_reduced(products, range(len(result), len(order)), body, keep=False)
