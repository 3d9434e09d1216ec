"""Sizes that only the run knows, as polynomials: sums of products of symbols, where a symbol may be a rounded part.

The size of a feature map is one rounded division around another for each convolution with a stride. A division that
has to be rounded, a maximum and a minimum become a symbol with a name that follows from what it says, so a polynomial
stays short however deep a network is, equal sizes stay equal, and arithmetic takes microseconds.
"""

from __future__ import annotations

import hashlib
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Final
from weakref import WeakValueDictionary

from dovetail.expr import Constant, DimensionOperation, Expr, Symbol, fits_plan, join_exprs

__all__ = [
    "Polynomial",
    "PolynomialFactor",
    "divide_exactly",
    "find_factor",
    "floor",
    "floor_div",
    "make_constant",
    "make_symbol",
    "maximum",
    "minimum",
]

_PREFIX: Final = "dim."
"""Names of dimensions that callers and files give have no dot, so that theirs and ours are never the same."""
_SIGNED: Final = re.compile(rf"value_|_d\d|{re.escape(_PREFIX)}")
"""Names of symbols that are not known to be dimensions, so that nothing is known of their sign."""
_MAX_CACHED: Final = 16384
_MAX_BOUNDS: Final = 3
"""How many parts are replaced by bounds to see which of two sizes is larger."""
_MAX_SHOWN: Final = 16
"""Symbols in a part of a formula that is written out in a message."""


class PolynomialFactor:
    """A symbol: the size of an input, or a rounded part of one; two of one name are the same."""

    __slots__ = ("__weakref__", "expr", "least", "name", "operands", "operation", "size", "symbols")

    def __init__(
        self,
        name: str,
        expr: Expr | None,
        least: int | None,
        operation: DimensionOperation | None = None,
        operands: tuple[Polynomial, ...] = (),
    ) -> None:
        self.name, self.operation, self.operands = name, operation, operands
        self.expr = expr
        """Expression of the plugin contract; None where it is too large for a plan."""
        self.least = least
        """It is never below this; None where that is not known."""
        inner = [factor for operand in operands for factor in operand.factors]
        self.size: int = 1 + sum(factor.size for factor in inner)
        """How many symbols it is made of, each as often as it is in there."""
        self.symbols: frozenset[str] = (
            frozenset().union(*(one.symbols for one in inner)) if operands else frozenset({name})
        )
        """The names of the sizes of inputs that it depends on."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PolynomialFactor) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


_Product = tuple[PolynomialFactor, ...]
_parts: WeakValueDictionary[str, PolynomialFactor] = WeakValueDictionary()
"""The rounded parts in use, by name: the sizes that they are part of keep them."""


class Polynomial:
    """A sum of products with rational coefficients; immutable."""

    __slots__ = ("_hash", "terms", "text")

    def __init__(self, terms: Mapping[_Product, Fraction]) -> None:
        kept = [(product, number) for product, number in terms.items() if number]
        self.terms = dict(sorted(kept, key=_rank))
        self.text = _write(self.terms)
        self._hash = hash(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and other.text == self.text

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: Polynomial) -> Polynomial:
        terms = dict(self.terms)
        for product, number in other.terms.items():
            terms[product] = terms.get(product, Fraction(0)) + number
        return Polynomial(terms)

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + other * make_constant(-1)

    def __mul__(self, other: Polynomial) -> Polynomial:
        terms: dict[_Product, Fraction] = {}
        for one, number in self.terms.items():
            for two, times in other.terms.items():
                product = tuple(sorted((*one, *two), key=_name_of))
                terms[product] = terms.get(product, Fraction(0)) + number * times
        return Polynomial(terms)

    @property
    def constant(self) -> Fraction | None:
        """The number that it is, if it is one."""
        return self.terms.get((), Fraction(0)) if not self.terms.keys() - {()} else None

    @property
    def is_whole(self) -> bool:
        """Whether its coefficients are integers."""
        return all(number.denominator == 1 for number in self.terms.values())

    @property
    def factors(self) -> set[PolynomialFactor]:
        """All symbols in it."""
        return {factor for product in self.terms for factor in product}

    @property
    def symbols(self) -> frozenset[str]:
        """The names of the sizes of inputs that it depends on."""
        return frozenset().union(*(factor.symbols for factor in self.factors))

    @property
    def least(self) -> Fraction | None:
        """It is never below this; None where that is not known."""
        total = Fraction(0)
        for product, number in self.terms.items():
            leasts = [factor.least for factor in product]
            if product and (number < 0 or any(least is None or least < 0 for least in leasts)):
                return None
            total += number * math.prod(least for least in leasts if least is not None)
        return total

    def describe(self) -> str:
        """The formula over the sizes of inputs, without parts that nobody would read."""
        return _write(self.terms, _formula_of)

    def to_expr(self) -> Expr | None:
        """Return the expression of the plugin contract, rounded down; None if it is too large for a plan."""
        return _to_expr(self)


def make_constant(number: int | Fraction) -> Polynomial:
    """A number."""
    return Polynomial({(): Fraction(number)})


def make_symbol(name: str) -> Polynomial:
    """A size by its name; a name of ours is the part that it stands for."""
    return Polynomial({(find_factor(name),): Fraction(1)})


def find_factor(name: str) -> PolynomialFactor:
    """Return a symbol by its name: a rounded part, a dimension, or an element of an input.

    A dimension can be zero. Elements of inputs, and values that only the run computes, can be negative.
    """
    return _parts.get(name) or PolynomialFactor(name, Symbol(name), None if _SIGNED.match(name) else 0)


# what has to be rounded


def floor_div(dividend: Polynomial, divisor: Polynomial) -> Polynomial | None:
    """Divide and round down, as the run does: a factor is cancelled only if it is never zero.

    Returns:
        The quotient; None for a division by the constant zero.
    """
    number = divisor.constant
    if number is not None:
        return None if number == 0 else floor(dividend * make_constant(1 / number))
    dividend, divisor = _cancel(dividend, divisor, _is_never_zero)
    if divisor.constant is not None:
        return floor_div(dividend, divisor)
    ratio = _find_ratio(dividend, divisor) if _is_never_zero(divisor) else None
    if ratio is not None:
        return floor(ratio)
    scale = make_constant(math.lcm(_denominator(dividend), _denominator(divisor)))
    least = 0 if _is_never_negative(dividend) and _is_never_negative(divisor) else None
    return _make_part(DimensionOperation.FLOOR_DIV, (dividend * scale, divisor * scale), least)


def divide_exactly(dividend: Polynomial, divisor: Polynomial) -> Polynomial | None:
    """Return the factor that gives the dividend when it is multiplied by the divisor, where there is one.

    Symbols that both have are cancelled even if they can be zero: where they are, every factor is as good as another.

    Returns:
        The factor, rounded down; None for a division by the constant zero.
    """
    dividend, divisor = _cancel(dividend, divisor)
    if divisor.constant is not None:
        return floor_div(dividend, divisor)
    ratio = _find_ratio(dividend, divisor)
    return floor_div(dividend, divisor) if ratio is None else floor(ratio)


def _find_ratio(dividend: Polynomial, divisor: Polynomial) -> Polynomial | None:
    """Return the number that gives the dividend when the divisor is multiplied by it; None if there is none."""
    leading = next(iter(divisor.terms))
    ratio = make_constant(dividend.terms.get(leading, Fraction(0)) / divisor.terms[leading])
    return ratio if divisor * ratio == dividend else None


def _is_never_zero(value: Polynomial) -> bool:
    return _is_never_negative(value - make_constant(1)) or _is_never_negative(make_constant(-1) - value)


@lru_cache(maxsize=_MAX_CACHED)
def floor(value: Polynomial) -> Polynomial:
    """Round down; only what has fractions is rounded, for the rest is whole, whatever the symbols are."""
    broken = {product: number for product, number in value.terms.items() if product and number.denominator > 1}
    if not broken:
        return Polynomial({product: Fraction(math.floor(number)) for product, number in value.terms.items()})
    sign = -1 if all(number < 0 for number in broken.values()) else 1  # of one number there is only one form
    divisor = math.lcm(*(number.denominator for number in broken.values()))
    inner = {product: sign * number - min(math.floor(sign * number), 0) for product, number in broken.items()}
    outer = {product: number - sign * inner.get(product, 0) for product, number in value.terms.items()}
    constant = outer.pop((), Fraction(0))
    rest = math.floor(constant * divisor) if sign > 0 else divisor - 1 - math.floor(constant * divisor)
    numerator = Polynomial(
        {**{product: number * divisor for product, number in inner.items()}, (): Fraction(rest % divisor)}
    )
    part = _floor_part(numerator, divisor)
    return Polynomial(outer) + (part + make_constant(rest // divisor)) * make_constant(sign)


def _floor_part(numerator: Polynomial, divisor: int) -> Polynomial:
    """One division; a division of a division, as each stride of a network makes one, is a single one too."""
    (product, number), *others = numerator.terms.items()
    inner = product[0] if len(product) == 1 and number == 1 and not any(rest for rest, _ in others) else None
    if inner is not None and inner.operation is DimensionOperation.FLOOR_DIV:
        dividend, by = inner.operands
        times = by.constant
        if times is not None:
            whole = dividend + make_constant(numerator.terms.get((), Fraction(0)) * times)
            return floor(whole * make_constant(1 / (times * divisor)))
    least = numerator.least
    least_quotient = None if least is None else math.floor(least / divisor)
    return _make_part(DimensionOperation.FLOOR_DIV, (numerator, make_constant(divisor)), least_quotient)


def maximum(values: Iterable[Polynomial]) -> Polynomial:
    """The largest of several."""
    return _choose(DimensionOperation.MAX, values, lambda one, other: one - other)


def minimum(values: Iterable[Polynomial]) -> Polynomial:
    """The smallest of several."""
    return _choose(DimensionOperation.MIN, values, lambda one, other: other - one)


def _choose(
    operation: DimensionOperation, values: Iterable[Polynomial], lead: Callable[[Polynomial, Polynomial], Polynomial]
) -> Polynomial:
    """One of several: those that another one always beats are left out."""
    kept: list[Polynomial] = []
    for value in (inner for outer in values for inner in _alternatives(operation, outer)):
        if not any(_is_never_negative(lead(other, value)) for other in kept):
            kept = [other for other in kept if not _is_never_negative(lead(value, other))] + [value]
    if len(kept) == 1:
        return kept[0]
    leasts = [math.floor(least) for least in (value.least for value in kept) if least is not None]
    if operation is DimensionOperation.MAX:
        return _make_part(operation, _sort(kept), max(leasts, default=None))
    return _make_part(operation, _sort(kept), min(leasts) if len(leasts) == len(kept) else None)


def _alternatives(operation: DimensionOperation, value: Polynomial) -> tuple[Polynomial, ...]:
    """Of what a maximum or minimum is one, so that what meets again is the same."""
    (product, number), *others = value.terms.items() or [((), Fraction(0))]
    is_alone = not others and number == 1 and len(product) == 1 and product[0].operation is operation
    return product[0].operands if is_alone else (value,)


def _is_never_negative(value: Polynomial, depth: int = _MAX_BOUNDS) -> bool:
    """Whether that is certain, if need be with bounds put in for rounded parts."""
    least = value.least
    if least is not None:
        return least >= 0
    parts = [(product[0], number) for product, number in value.terms.items() if len(product) == 1]
    return depth > 0 and any(
        _is_never_negative(value + (bound - Polynomial({(factor,): Fraction(1)})) * make_constant(number), depth - 1)
        for factor, number in parts
        for bound in _bounds(factor, is_upper=number < 0)
    )


def _bounds(factor: PolynomialFactor, *, is_upper: bool) -> tuple[Polynomial, ...]:
    """What a rounded part is never above, or never below."""
    if factor.operation is (DimensionOperation.MIN if is_upper else DimensionOperation.MAX):
        return factor.operands
    if factor.operation is not DimensionOperation.FLOOR_DIV or not is_upper:
        return ()
    divisor = factor.operands[1].constant
    return () if divisor is None else (factor.operands[0] * make_constant(1 / divisor),)


def _make_part(operation: DimensionOperation, operands: tuple[Polynomial, ...], least: int | None) -> Polynomial:
    text, size = f"{operation.name} {'; '.join(operand.text for operand in operands)}", 5
    while True:
        name = f"{_PREFIX}{hashlib.blake2s(text.encode(), digest_size=size).hexdigest()}"
        known = _parts.get(name)
        if known is None:
            expr = _fold(operation, [operand.to_expr() for operand in operands])
            known = _parts.setdefault(name, PolynomialFactor(name, expr, least, operation, operands))
        if (known.operation, known.operands) == (operation, operands):
            return Polynomial({(known,): Fraction(1)})
        size += 1


def _cancel(
    dividend: Polynomial, divisor: Polynomial, may_cancel: Callable[[Polynomial], bool] = lambda _: True
) -> tuple[Polynomial, Polynomial]:
    """Divide both by the symbols that all their products contain, where `may_cancel` allows it."""
    shared = reduce(
        operator.and_, map(Counter, (*dividend.terms, *divisor.terms)), Counter(next(iter(divisor.terms), ()))
    )
    allowed = Counter(
        {factor: count for factor, count in shared.items() if may_cancel(Polynomial({(factor,): Fraction(1)}))}
    )
    return (_without(dividend, allowed), _without(divisor, allowed)) if allowed else (dividend, divisor)


def _without(value: Polynomial, factors: Counter[PolynomialFactor]) -> Polynomial:
    terms = {}
    for product, number in value.terms.items():
        left = Counter(product) - factors
        terms[tuple(sorted(left.elements(), key=_name_of))] = number
    return Polynomial(terms)


def _denominator(value: Polynomial) -> int:
    return math.lcm(*(number.denominator for number in value.terms.values()))


def _sort(values: list[Polynomial]) -> tuple[Polynomial, ...]:
    return tuple(sorted(values, key=lambda value: value.text))


# forms


def _name_of(factor: PolynomialFactor) -> str:
    return factor.name


def _formula_of(factor: PolynomialFactor) -> str:
    """What a symbol stands for, for whoever reads a message."""
    if factor.operation is None:
        return factor.name
    operands = [operand.describe() if factor.size <= _MAX_SHOWN else "..." for operand in factor.operands]
    if factor.operation is DimensionOperation.FLOOR_DIV:
        return f"floor(({operands[0]})/({operands[1]}))"
    return f"{factor.operation.name.lower()}({', '.join(operands)})"


def _rank(term: tuple[_Product, Fraction]) -> tuple[int, list[str]]:
    return -len(term[0]), [factor.name for factor in term[0]]


def _write(terms: Mapping[_Product, Fraction], write: Callable[[PolynomialFactor], str] = _name_of) -> str:
    """A text that onnx-ir reads as the same."""
    texts = []
    for product, number in terms.items():
        above = [str(abs(number.numerator))] if abs(number.numerator) != 1 or not product else []
        below = f"/{number.denominator}" if number.denominator != 1 else ""
        sign = "-" if number < 0 else "+"
        texts.append(f"{sign} {'*'.join([*above, *map(write, product)])}{below}")
    text = " ".join(texts) or "+ 0"
    return text[2:] if text[0] == "+" else f"-{text[2:]}"


@lru_cache(maxsize=_MAX_CACHED)
def _to_expr(value: Polynomial) -> Expr | None:
    scale = _denominator(value)
    terms = [(product, int(number * scale)) for product, number in value.terms.items()]
    added = [_multiply(product, number) for product, number in terms if number > 0]
    subtracted = [_multiply(product, -number) for product, number in terms if number < 0]
    total = _fold(DimensionOperation.SUM, added or [Constant(0)])
    return _fold(DimensionOperation.FLOOR_DIV, [_fold(DimensionOperation.SUB, [total, *subtracted]), Constant(scale)])


def _multiply(product: _Product, number: int) -> Expr | None:
    return _fold(DimensionOperation.PROD, [Constant(number), *(factor.expr for factor in product)])


def _fold(operation: DimensionOperation, parts: Sequence[Expr | None]) -> Expr | None:
    """Join expressions from left to right; None if one of them, or the result, is too large for a plan."""
    joined = parts[0]
    for part in parts[1:]:
        joined = None if joined is None or part is None else join_exprs(operation, joined, part)
    is_storable = all(part is None or fits_plan(part) for part in parts)
    return joined if is_storable else None
