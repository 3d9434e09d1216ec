"""Shapes of a network in one profile: expressions where they are known, and their min, opt and max.

A symbol is *static* when the inputs alone decide it; values whose dims use only static symbols can be planned.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import onnx_ir as ir

from dovetail._unset_dims import UnsetDim, shapes_option
from dovetail.build.profile import OptimizationProfile
from dovetail.errors import UsageError
from dovetail.expr import Expr, SizeTensor, Symbol, evaluate, interval, substitute, symbols_of
from dovetail.near_names import suggest
from dovetail.network.inference.dim_exprs import expr_from_dim
from dovetail.network.inference.shapes import MAX_VALUE_SYMBOLS, size_symbols, static_count, value_symbol
from dovetail.network.value_types import has_no_shape
from dovetail.tensors import ShapeRange

__all__ = [
    "ProfileShapes",
    "Ranges",
    "StaticSymbol",
    "complete_profile",
    "dims_of",
    "find_unset_symbols",
    "known_dims",
    "ranges_from_profile",
    "static_symbols",
    "substitute_dims",
    "unite_shapes",
]

Dims = list[Expr | None]
_UNBOUNDED: Final = -1
_LARGEST: Final = 2**63 - 1
"""Largest size of a dimension without an upper bound."""
_UNKNOWN: Final = (0, 1, _UNBOUNDED)
"""Min, opt and max of a dimension that only the run tells."""
_OPEN: Final = (1, 1, _UNBOUNDED)
"""Min, opt and max of a dimension of an input without a profile."""


@dataclass(frozen=True)
class StaticSymbol:
    """Where the runtime reads a symbol: an axis or an element of an input."""

    input_index: int
    source: str
    index: int


def dims_of(value: ir.Value) -> Dims | None:
    """The shape of a value as expressions; None when even the rank is unknown."""
    return None if value.shape is None else [expr_from_dim(dim) for dim in value.shape.dims]


def static_symbols(inputs: Sequence[ir.Value]) -> dict[str, StaticSymbol]:
    """Every symbol that inputs define: their dims, and the contents of small integer ones."""
    symbols: dict[str, StaticSymbol] = {}
    for position, value in enumerate(inputs):
        for axis, expr in enumerate(dims_of(value) or ()):
            if isinstance(expr, Symbol):
                symbols.setdefault(expr.name, StaticSymbol(position, "dim", axis))
        for index in range(_element_count(value)):
            symbols.setdefault(value_symbol(value.name or "", index), StaticSymbol(position, "element", index))
    return symbols


def _element_count(value: ir.Value) -> int:
    count = static_count(value)
    return 0 if count is None or count > MAX_VALUE_SYMBOLS else count


@dataclass
class Ranges:
    """Min, opt and max of every symbol; max is -1 where there is no bound."""

    symbols: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    def add_sizes(self, node: ir.Node) -> None:
        """Add the size tensors of a plugin node: from no element to the upper bound of the declared maximum."""
        for size in size_symbols(node):
            opt, upper = self.at([size.opt])[1][0], self.at([size.upper])[2][0]
            self.symbols[size.name] = (0, opt, upper)

    def at(self, dims: Sequence[Expr | None]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Return the lower bounds, the opt sizes and the upper bounds of a shape over the profile.

        A size that decreases where a symbol increases is largest at the minimum of the symbol, so the bounds are those
        of the interval and not the sizes at min and max of the profile. An upper bound is -1 where there is none.
        """
        points = [self._point(dim) for dim in dims]
        return tuple(p[0] for p in points), tuple(p[1] for p in points), tuple(p[2] for p in points)

    def _point(self, dim: Expr | None) -> tuple[int, int, int]:
        if dim is None:
            return _UNKNOWN
        if isinstance(dim, SizeTensor):
            return (0, self._point(dim.opt)[1], self._point(dim.upper)[2])
        names = symbols_of(dim)
        # Tuning runs with all symbols at opt together, and sizes of symbols without bounds must match them.
        opt = max(evaluate(dim, {name: self.symbols.get(name, _UNKNOWN)[1] for name in names}), 0)
        if not names <= self.symbols.keys():
            return (0, opt, _UNBOUNDED)
        is_bounded = all(self.symbols[name][2] != _UNBOUNDED for name in names)
        low, high = interval(dim, {name: self._range(name) for name in names})
        return (max(low, 0), opt, max(high, 0) if is_bounded else _UNBOUNDED)

    def _range(self, name: str) -> tuple[int, int]:
        low, _, high = self.symbols[name]
        return (low, _LARGEST if high == _UNBOUNDED else high)

    def bound(self, dims: Sequence[Expr | None]) -> tuple[int, ...] | None:
        """The largest value of each dimension over the whole profile; None when one has no bound."""
        bounds = {name: (low, high) for name, (low, _, high) in self.symbols.items() if high != _UNBOUNDED}
        result = []
        for dim in dims:
            if dim is None or not symbols_of(dim) <= bounds.keys():
                return None
            result.append(max(interval(dim, bounds)[1], 0))
        return tuple(result)

    def cover(self, dims: Sequence[Expr | None]) -> ShapeRange:
        """The smallest, the tuned and the largest of each dimension over the whole profile."""
        low, opt, _ = self.at(dims)
        bounds = {name: (a, b) for name, (a, _, b) in self.symbols.items() if b != _UNBOUNDED}
        ends = [
            interval(dim, bounds) if dim is not None and symbols_of(dim) <= bounds.keys() else (a, None)
            for dim, a in zip(dims, low, strict=True)
        ]
        return ShapeRange(
            min=tuple(max(first, 0) for first, _ in ends),
            opt=opt,
            max=tuple(None if last is None else max(last, 0) for _, last in ends),
        )


@dataclass(frozen=True)
class ProfileShapes:
    """The shapes that values have in one profile, as providers are told them."""

    ranges: Ranges
    known: Mapping[str, Expr] = field(default_factory=dict)
    """Open dims that are known because the profile bounds what callers pass as sizes."""

    def find(self, value: ir.Value) -> ShapeRange | None:
        """The shapes of a value; None when even the rank is unknown, and for objects."""
        dims = None if has_no_shape(value) else dims_of(value)
        return None if dims is None else self.ranges.cover(substitute_dims(dims, self.known))

    def find_all(self, values: Sequence[ir.Value]) -> dict[str, ShapeRange]:
        """The same by name, for those that have a shape."""
        found = {value.name or "": self.find(value) for value in values}
        return {name: shapes for name, shapes in found.items() if shapes is not None}


def unite_shapes(profiles: Sequence[Mapping[str, ShapeRange]]) -> dict[str, ShapeRange]:
    """The shapes over several profiles, tuned for those of the first."""
    first, *others = profiles or [{}]
    return {name: _unite(shapes, [other[name] for other in others]) for name, shapes in first.items()}


def _unite(first: ShapeRange, others: Sequence[ShapeRange]) -> ShapeRange:
    every = [first, *others]
    return ShapeRange(
        min=tuple(min(sizes) for sizes in zip(*(shapes.min for shapes in every), strict=True)),
        opt=first.opt,
        max=tuple(
            None if None in sizes else max(size for size in sizes if size is not None)
            for sizes in zip(*(shapes.max for shapes in every), strict=True)
        ),
    )


def find_unset_symbols(inputs: Sequence[ir.Value], symbols: Collection[str]) -> list[UnsetDim]:
    """The dims of inputs, among these symbols, that tuning without a profile takes to be as small as they can be."""
    found = []
    for value in inputs:
        dims = dims_of(value) or []
        shape = [dim.get_constant_value() if dim is not None and dim.is_constant() else _OPEN[1] for dim in dims]
        names = {dim.name: axis for axis, dim in reversed(list(enumerate(dims))) if isinstance(dim, Symbol)}
        option = shapes_option(value.name or "", shape)
        found += [
            UnsetDim(input=value.name or "", axis=axis, name=name, size=_OPEN[1], set_with=option)
            for name, axis in sorted(names.items(), key=lambda item: item[1])
            if name in symbols
        ]
    return found


def complete_profile(profile: OptimizationProfile, inputs: Sequence[ir.Value]) -> None:
    """Give inputs without a shape in a profile the sizes that their named dimensions have in other inputs of it."""
    known: dict[str, list[int]] = {}
    for value in inputs:
        bounds = profile.shapes.get(value.name or "", ((), (), ()))
        for dim, sizes in zip(dims_of(value) or (), zip(*bounds, strict=True), strict=False):
            if isinstance(dim, Symbol):
                known.setdefault(dim.name, list(sizes))
    for value in inputs:
        dims, name = dims_of(value) or [], value.name or ""
        names = [dim.name for dim in dims if isinstance(dim, Symbol)]
        is_plain = len(names) == sum(dim is None or not dim.is_constant() for dim in dims)
        if name not in profile.shapes and names and is_plain and known.keys() >= set(names):
            found = [known[d.name] if isinstance(d, Symbol) else [d.get_constant_value()] * 3 for d in dims if d]
            low, opt, high = ([sizes[part] for sizes in found] for part in range(3))
            profile.set_shape(name, low, opt, high)


def ranges_from_profile(inputs: Sequence[ir.Value], profile: OptimizationProfile | None) -> Ranges:
    """The ranges of input symbols: from a profile, or open when there is none."""
    ranges = Ranges()
    if profile is not None:
        _check_names(profile, [value.name or "" for value in inputs])
    for value in inputs:
        name = value.name or ""
        bounds = None if profile is None else profile.shapes.get(name)
        dims = dims_of(value) or []
        if profile is not None and bounds is None and any(isinstance(d, Symbol) for d in dims):
            raise UsageError(
                "a dynamic input has no shape in the profile",
                where=f"input '{name}'",
                expected=f"min, opt and max for {_text(dims)}",
                fix=f"call profile.set_shape('{name}', min, opt, max), or give it with shapes (--shapes {name}:...)",
            )
        _check_rank(name, dims, bounds)
        for axis, dim in enumerate(dims):
            if isinstance(dim, Symbol):
                _merge(ranges, name, dim.name, _axis_bounds(bounds, axis))
        _add_elements(ranges, value, None if profile is None else profile.values)
    return ranges


def known_dims(assumed: Mapping[str, tuple[Expr, int]], ranges: Ranges) -> dict[str, Expr]:
    """Of the dims that are sizes if what callers pass is one, those where the profile says that it is."""
    known = {}
    for name, (size, least) in assumed.items():
        bounds = [ranges.symbols.get(symbol, (0, 0, _UNBOUNDED)) for symbol in symbols_of(size)]
        if all(low >= least and high != _UNBOUNDED for low, _, high in bounds):
            known[name] = size
    return known


def substitute_dims(dims: Sequence[Expr | None], known: Mapping[str, Expr]) -> Dims:
    """The dims of one tensor with symbols replaced."""
    return [None if dim is None else substitute(dim, known) for dim in dims]


def _check_names(profile: OptimizationProfile, names: Sequence[str]) -> None:
    for name in (*profile.shapes, *profile.values):
        if name not in names:
            expected = ", ".join(names) or "no inputs"
            raise UsageError(
                f"there is no input '{name}'", where="profile", expected=expected, fix=suggest(name, names)
            )


def _axis_bounds(bounds: tuple[tuple[int, ...], ...] | None, axis: int) -> tuple[int, int, int]:
    if bounds is None:
        return _OPEN
    return (bounds[0][axis], bounds[1][axis], bounds[2][axis])


def _check_rank(name: str, dims: Dims, bounds: tuple[tuple[int, ...], ...] | None) -> None:
    if bounds is None:
        return
    fixed = [
        (axis, expr.get_constant_value()) for axis, expr in enumerate(dims) if expr is not None and expr.is_constant()
    ]
    if len(bounds[0]) != len(dims) or any(part[axis] != n for part in bounds for axis, n in fixed):
        raise UsageError(
            "the profile does not fit the input's shape",
            where=f"input '{name}'",
            expected=_text(dims),
            got=" / ".join(str(part) for part in bounds),
        )


def _merge(ranges: Ranges, input_name: str, symbol: str, bounds: tuple[int, int, int]) -> None:
    known = ranges.symbols.get(symbol)
    if known is not None and known != bounds and -1 not in (known[2], bounds[2]):
        raise UsageError(
            f"the profile gives dimension '{symbol}' two different ranges",
            where=f"input '{input_name}'",
            expected=known,
            got=bounds,
        )
    ranges.symbols[symbol] = bounds


def _add_elements(ranges: Ranges, value: ir.Value, values: Mapping[str, tuple[tuple[int, ...], ...]] | None) -> None:
    name = value.name or ""
    bounds = None if values is None else values.get(name)
    count = _element_count(value)
    if bounds is not None and len(bounds[0]) != count:
        raise UsageError(
            "the profile gives an input another number of values than it has, or it is no shape input",
            where=f"input '{name}'",
            expected=count,
            got=len(bounds[0]),
        )
    for index in range(count):
        ranges.symbols[value_symbol(name, index)] = _axis_bounds(bounds, index)


def _text(dims: Dims) -> str:
    return f"({', '.join('?' if d is None else str(d) for d in dims)})"
