"""The dimensions of a partition that vary: read from the shapes of its inputs, bounded by the profile."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dovetail_cuda.lower.sizes import make_symbol
from dovetail_cuda.lower.tensors import refuse
from dovetail_cuda.run.variants import SymbolRecord

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.provider.interfaces import ShapeRange

__all__ = ["Dimension", "find_dimensions", "find_sizes", "make_sizes"]

Dimension = tuple[SymbolRecord, int]
"""A symbol, and the value of it to be fast for."""


def find_dimensions(model: ir.Model, shapes: Mapping[str, ShapeRange], *, is_open: bool) -> list[Dimension]:
    """Every dimension that varies, once; one that is an expression of others is none of its own.

    Raises:
        ProviderError: Nothing is known of a shape.
    """
    places = list(_list_places(model, shapes, is_open))
    names = {symbol.name for symbol, _ in places if symbol.name.isidentifier()}
    found: dict[str, Dimension] = {}
    for symbol, opt in places:
        if symbol.name.isidentifier() or _parse(symbol.name, dict.fromkeys(names, 1)) is None:
            found.setdefault(symbol.name, (symbol, opt))
    return list(found.values())


def _list_places(model: ir.Model, shapes: Mapping[str, ShapeRange], is_open: bool) -> Iterator[Dimension]:
    for number, value in enumerate(model.graph.inputs):
        bounds = shapes.get(value.name or "")
        if value.shape is None:
            raise refuse(f"nothing is known of the shape of '{value.name}' when the plan is built")
        for axis, dim in enumerate(value.shape):
            if isinstance(dim, int):
                continue
            name = dim.value
            if name is None or bounds is None:
                raise refuse(f"dimension {axis} of '{value.name}' is not known before a run")
            low, opt, high = bounds.min[axis], bounds.opt[axis], bounds.max[axis]
            if high is None and (not is_open or low == 0):  # an input that is open has one element at least
                raise refuse(f"dimension {axis} of '{value.name}' is not known before a run")
            low = 0 if is_open else low  # which is not asked of callers
            yield SymbolRecord(name=str(name), input=number, axis=axis, low=low, high=high), opt


def make_sizes(dimensions: Sequence[Dimension]) -> dict[str, int]:
    """The dimensions as sizes that vary, by name."""
    return {symbol.name: make_symbol(symbol.name, symbol.low, opt, symbol.high) for symbol, opt in dimensions}


def find_sizes(value: ir.Value, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of an input, with what its open dimensions are."""
    if value.shape is None:
        raise refuse(f"nothing is known of the shape of '{value.name}' when the plan is built")
    return tuple(_find_size(value, dim, sizes) for dim in value.shape)


def _find_size(value: ir.Value, dim: Any, sizes: Mapping[str, int]) -> int:
    if isinstance(dim, int):
        return dim
    name = str(dim.value)
    size = sizes.get(name)
    size = _parse(name, sizes) if size is None else size
    if size is None:
        raise refuse(f"the shape of '{value.name}' is not known when the plan is built")
    return size


def _parse(text: str, sizes: Mapping[str, int]) -> int | None:
    """Return the size of a sum, a product or a floor division of dimensions.

    Returns:
        The size; None for any other text, and for a text that is nested too deeply to be parsed.
    """
    try:
        return _compute(ast.parse(text, mode="eval").body, sizes)
    except (KeyError, SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _compute(node: ast.expr, sizes: Mapping[str, int]) -> int:
    match node:
        case ast.Name():
            return sizes[node.id]
        case ast.Constant() if type(node.value) is int:  # a dimension can have the name True
            return node.value
        case ast.UnaryOp(op=ast.USub()):
            return -_compute(node.operand, sizes)
        case ast.BinOp():
            left, right = _compute(node.left, sizes), _compute(node.right, sizes)
            match node.op:
                case ast.Add():
                    return left + right
                case ast.Sub():
                    return left - right
                case ast.Mult():
                    return left * right
                case ast.FloorDiv():
                    return left // right
    raise ValueError("no such expression")
