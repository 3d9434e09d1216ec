"""The edge between onnx-ir's dimensions, which are sympy's, and our expressions.

A dimension of ours has onnx-ir's interface and counts with polynomials, so that sympy is only asked where the library
looks into an expression itself, or where it made one that is no polynomial.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

import onnx_ir as ir
import sympy

from dovetail.expr import Constant, DimensionOperation, Expr, Operation, Symbol
from dovetail.network.inference.dim_polynomials import (
    Polynomial,
    PolynomialFactor,
    divide_exactly,
    find_factor,
    floor,
    floor_div,
    make_constant,
    make_symbol,
    maximum,
    minimum,
)

__all__ = [
    "Dim",
    "PolynomialDim",
    "describe_shape",
    "dim_from_expr",
    "divide_size",
    "expr_from_dim",
    "make_dim",
    "max_of",
    "min_of",
    "settle",
    "settle_shape",
    "symbols_in",
]

Dim = int | ir.SymbolicDim
_Apply = Callable[[Polynomial, Polynomial], Polynomial | None]
_MAX_CACHED: Final = 16384


class PolynomialDim(ir.SymbolicDim):
    """A dimension that counts with polynomials; with what is none, it does what every dimension of onnx-ir does."""

    __slots__ = ("polynomial",)

    def __init__(self, polynomial: Polynomial) -> None:
        super().__init__(polynomial.text)
        self.polynomial = polynomial

    @property
    def _expr(self) -> Any:
        if self._expr_cache is None:
            self._expr_cache = _sympy_from_polynomial(self.polynomial)
        return self._expr_cache

    def __add__(self, other: Dim) -> Any:
        return self._count(other, lambda one, two: one + two, super().__add__)

    def __sub__(self, other: Dim) -> Any:
        return self._count(other, lambda one, two: one - two, super().__sub__)

    def __rsub__(self, other: int) -> Any:
        return self._count(other, lambda one, two: two - one, super().__rsub__)

    def __mul__(self, other: Dim) -> Any:
        return self._count(other, lambda one, two: one * two, super().__mul__)

    def __floordiv__(self, other: Dim) -> Any:
        return self._count(other, floor_div, super().__floordiv__)

    def __rfloordiv__(self, other: int) -> Any:
        return make_dim(self._reverse(other, floor_div))

    def __truediv__(self, other: Dim) -> Any:
        return self._count(other, _divide, super().__truediv__)

    def __mod__(self, other: Dim) -> Any:
        return self._count(other, _modulo, super().__mod__)

    def __rmod__(self, other: int) -> Any:
        return make_dim(self._reverse(other, _modulo))

    def __floor__(self) -> Any:
        return make_dim(floor(self.polynomial))

    def __ceil__(self) -> Any:
        return make_dim(_negate(floor(_negate(self.polynomial))))

    def __neg__(self) -> Any:
        return make_dim(_negate(self.polynomial))

    def _count(self, other: object, apply: _Apply, otherwise: Callable[[Any], Any]) -> Any:
        second = polynomial_of(other) if isinstance(other, int | ir.SymbolicDim) else None
        if second is not None and second.constant == 0 and apply in _DIVISIONS:
            return ir.SymbolicDim(None)  # a run that computes it fails
        result = None if second is None else apply(self.polynomial, second)
        return otherwise(other) if result is None else make_dim(result)

    def _reverse(self, other: int, apply: _Apply) -> Polynomial:
        """Apply an operation with an integer on the left; it has a result because the divisor is not constant."""
        result = apply(make_constant(other), self.polynomial)
        if result is None:
            raise ZeroDivisionError("a dimension is divided by zero")
        return result


def _divide(one: Polynomial, two: Polynomial) -> Polynomial | None:
    return one * make_constant(1 / two.constant) if two.constant else None


def _modulo(one: Polynomial, two: Polynomial) -> Polynomial | None:
    quotient = floor_div(one, two)
    return None if quotient is None else one - two * quotient


_DIVISIONS: Final = (floor_div, _divide, _modulo)


def _ceil_div(one: Polynomial, two: Polynomial) -> Polynomial | None:
    quotient = floor_div(_negate(one), two)
    return None if quotient is None else _negate(quotient)


def _negate(polynomial: Polynomial) -> Polynomial:
    return polynomial * make_constant(-1)


@lru_cache(maxsize=_MAX_CACHED)
def make_dim(polynomial: Polynomial) -> Dim:
    """A dimension from a polynomial; an integer when that is what it is."""
    number = polynomial.constant
    return int(number) if number is not None and number.denominator == 1 else PolynomialDim(polynomial)


def polynomial_of(dim: Dim) -> Polynomial | None:
    """What a dimension says; None when it is not known, or no polynomial."""
    if isinstance(dim, int):
        return make_constant(dim)
    if isinstance(dim, PolynomialDim):
        return dim.polynomial
    if dim.value is None:
        return None
    return make_symbol(dim.value) if dim.value.isidentifier() else _polynomial_from_sympy(dim._expr)


def max_of(*dims: Dim) -> Dim:
    """The largest of several dimensions."""
    return _choose(dims, maximum, sympy.Max)


def min_of(*dims: Dim) -> Dim:
    """The smallest of several dimensions."""
    return _choose(dims, minimum, sympy.Min)


def _choose(dims: Sequence[Dim], choose: Callable[[list[Polynomial]], Polynomial], otherwise: Any) -> Dim:
    known = [polynomial for polynomial in map(polynomial_of, dims) if polynomial is not None]
    if len(known) == len(dims):
        return make_dim(choose(known))
    return ir.SymbolicDim(otherwise(*(dim if isinstance(dim, int) else dim._expr for dim in dims)))


def divide_size(total: Dim, known: Dim) -> Dim | None:
    """Return the size that gives a total number of elements together with known sizes, as -1 in Reshape.

    Returns:
        The size; None if a dimension is unknown or the known sizes are zero.
    """
    dividend, divisor = polynomial_of(total), polynomial_of(known)
    quotient = None if dividend is None or divisor is None else divide_exactly(dividend, divisor)
    return None if quotient is None else make_dim(quotient)


def settle(dim: Dim) -> Dim:
    """The same dimension, which counts with polynomials if it is one; of a fraction the whole part is meant."""
    polynomial = None if isinstance(dim, int) else polynomial_of(dim)
    if polynomial is None:
        return dim
    return make_dim(polynomial if polynomial.is_whole else floor(polynomial))


def settle_shape(value: ir.Value) -> None:
    """Let the dimensions of a value count with polynomials."""
    shape = value.shape
    if shape is not None and any(type(dim) is ir.SymbolicDim for dim in shape.dims):
        value.shape = ir.Shape([settle(dim) for dim in shape.dims])


def describe_shape(shape: ir.Shape | None) -> str:
    """A shape for a message: sizes as formulas over the sizes of inputs, where that is short."""
    return "" if shape is None else f"[{','.join(map(_describe, shape.dims))}]"


def _describe(dim: Dim) -> str:
    return dim.polynomial.describe() if isinstance(dim, PolynomialDim) else str(dim)


def symbols_in(dim: Dim) -> frozenset[str]:
    """The names of all symbols that a dimension depends on; not those given here, but those of what they stand for."""
    polynomial = polynomial_of(dim)
    if polynomial is not None:
        return polynomial.symbols
    expression = None if isinstance(dim, int) else dim._expr
    return frozenset() if expression is None else _symbols_in(expression)


def _symbols_in(expression: Any) -> frozenset[str]:
    return frozenset().union(*(find_factor(symbol.name).symbols for symbol in expression.free_symbols))


# sympy


@lru_cache(maxsize=_MAX_CACHED)
def _polynomial_from_sympy(expression: Any) -> Polynomial | None:
    if expression.is_Rational:
        return make_constant(Fraction(int(expression.p), int(expression.q)))
    if expression.is_Symbol:
        return make_symbol(expression.name)
    if isinstance(expression, sympy.floor | sympy.ceiling):
        return _rounded_from_sympy(expression)
    if expression.is_Pow and not (expression.exp.is_Integer and 0 < int(expression.exp) <= 8):
        return None
    numerator, denominator = sympy.fraction(sympy.together(expression))
    if not denominator.is_Integer:
        return _apply_all(floor_div, [numerator, denominator])
    if expression.is_Pow:
        return _apply_all(lambda one, two: one * two, [expression.base] * int(expression.exp))
    apply = _FROM_SYMPY.get(expression.func)
    return None if apply is None else _apply_all(apply, expression.args)


def _apply_all(apply: _Apply, arguments: Any) -> Polynomial | None:
    result, *others = (_polynomial_from_sympy(argument) for argument in arguments)
    for other in others:
        result = None if result is None or other is None else apply(result, other)
    return result


def _rounded_from_sympy(expression: Any) -> Polynomial | None:
    parts = sympy.fraction(sympy.together(expression.args[0]))
    return _apply_all(floor_div if isinstance(expression, sympy.floor) else _ceil_div, parts)


_FROM_SYMPY: Final[Mapping[Any, _Apply]] = {
    sympy.Add: lambda one, two: one + two,
    sympy.Mul: lambda one, two: one * two,
    sympy.Max: lambda one, two: maximum([one, two]),
    sympy.Min: lambda one, two: minimum([one, two]),
    sympy.Mod: _modulo,
}


@lru_cache(maxsize=_MAX_CACHED)
def _sympy_from_polynomial(polynomial: Polynomial) -> Any:
    return sympy.Add(
        *(
            sympy.Mul(sympy.Rational(number.numerator, number.denominator), *map(_sympy_symbol, product))
            for product, number in polynomial.terms.items()
        )
    )


def _sympy_symbol(factor: PolynomialFactor) -> Any:
    least = -1 if factor.least is None else factor.least
    sign = {"positive": True} if least > 0 else {"nonnegative": True} if least == 0 else {}
    return sympy.Symbol(factor.name, integer=True, **sign)


# our expressions


def expr_from_dim(dim: Dim) -> Expr | None:
    """Convert a dimension of onnx-ir to an expression.

    Returns:
        The expression; None if it has no integer form of the nine operations, or is too large for a plan.
    """
    polynomial = polynomial_of(dim)
    return None if polynomial is None else polynomial.to_expr()


def dim_from_expr(expr: Expr, known: Mapping[Expr, Dim]) -> Dim | None:
    """The reverse: a dimension onnx-ir can carry on; None for EQUAL and LESS, which it has no words for.

    Args:
        expr: What a plugin says.
        known: Dimensions that it may have said it by.
    """
    if expr in known:
        return known[expr]
    if isinstance(expr, Constant):
        return expr.value
    if isinstance(expr, Symbol):
        return ir.SymbolicDim(expr.name)
    apply = _FROM_EXPR.get(expr.operation) if isinstance(expr, Operation) else None
    if apply is None or not isinstance(expr, Operation):
        return None
    parts = [dim_from_expr(part, known) for part in (expr.first, expr.second)]
    first, second = (None if part is None else polynomial_of(part) for part in parts)
    result = None if first is None or second is None else apply(first, second)
    return None if result is None else make_dim(result)


_FROM_EXPR: Final[Mapping[DimensionOperation, _Apply]] = {
    DimensionOperation.SUM: lambda one, two: one + two,
    DimensionOperation.SUB: lambda one, two: one - two,
    DimensionOperation.PROD: lambda one, two: one * two,
    DimensionOperation.MAX: lambda one, two: maximum([one, two]),
    DimensionOperation.MIN: lambda one, two: minimum([one, two]),
    DimensionOperation.FLOOR_DIV: floor_div,
    DimensionOperation.CEIL_DIV: _ceil_div,
}
