"""Sizes that vary inside a profile: polynomials over the dimensions that inputs leave open.

A size stands wherever an integer does, in shapes, in the factors of an index and in the text of a kernel, and is
computed with like one; for type checkers it is one. What does not depend on the shapes of a run is a plain integer
again, so that nothing changes where all shapes are known. A comparison holds for all shapes of the profile or for
none; one that holds for some only is an error, by which this back end refuses what it cannot do for all of them. Two
sizes are equal where they are the same polynomial, and no size counts as zero: whoever asks either must be right with
"not known to be".
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn, cast

from dovetail.errors import ProviderError, UsageError
from dovetail.expr import DimensionOperation, Expr, IExprBuilder, Symbol, list_divisors

__all__ = [
    "Size",
    "as_size",
    "divide",
    "estimate",
    "expr_from_size",
    "find_common",
    "floor_nonzero",
    "greatest",
    "is_below",
    "is_fixed",
    "least",
    "make_symbol",
    "may_exceed",
    "size_from_text",
]

_Number = Any
"""An integer or a ``Size``; outside of this room, type checkers take both for integers."""
_UNBOUNDED: Final = 1 << 40
"""What stands for the greatest value of a dimension without a bound."""


@dataclass(frozen=True)
class _Unknown:
    """A dimension of an input, and what it may be."""

    name: str
    low: int
    opt: int
    high: int

    @property
    def bounds(self) -> tuple[int, int]:
        return self.low, self.high

    @property
    def estimate(self) -> int:
        return self.opt

    def encode(self) -> list[Any]:
        return [self.name, self.low, self.opt, self.high]


@dataclass(frozen=True)
class _Floor:
    """A floor division that does not come out even."""

    of: int
    by: int

    @property
    def bounds(self) -> tuple[int, int]:
        # Nothing is divided by zero: where a divisor is, there are no elements.
        corners = [a // b for a in _bounds(self.of) for b in list_divisors(*_bounds(self.by))]
        return min(corners), max(corners)

    @property
    def estimate(self) -> int:
        return estimate(self.of) // (estimate(self.by) or 1)

    def encode(self) -> list[Any]:
        return [_encode(self.of), _encode(self.by)]


_Atom = _Unknown | _Floor
_Product = tuple[_Atom, ...]
_Terms = dict[_Product, int]


class Size:
    """A sum of products of dimensions, with integer factors."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: _Terms) -> None:
        self.terms = terms
        self._hash = hash(frozenset(terms.items()))

    # arithmetic

    def __add__(self, other: Any) -> int:
        return _add(self, other)

    def __mul__(self, other: Any) -> int:
        return _multiply(self, other)

    def __sub__(self, other: Any) -> int:
        return _add(self, _multiply(other, -1))

    def __rsub__(self, other: Any) -> int:
        return _add(other, _multiply(self, -1))

    def __neg__(self) -> int:
        return _multiply(self, -1)

    def __floordiv__(self, other: Any) -> int:
        return _floor(self, other)

    def __rfloordiv__(self, other: Any) -> int:
        return _floor(other, self)

    def __mod__(self, other: Any) -> int:
        return _add(self, _multiply(_floor(self, other), _multiply(other, -1)))

    def __rmod__(self, other: Any) -> int:
        return _add(other, _multiply(_floor(other, self), _multiply(self, -1)))

    __radd__, __rmul__ = __add__, __mul__

    # comparison

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __lt__(self, other: Any) -> bool:
        return self._decide(other - self, other, "<")

    def __gt__(self, other: Any) -> bool:
        return self._decide(self - other, other, ">")

    def __le__(self, other: Any) -> bool:
        return self._decide(other - self + 1, other, "<=")

    def __ge__(self, other: Any) -> bool:
        return self._decide(self - other + 1, other, ">=")

    def _decide(self, difference: int, other: object, sign: str) -> bool:
        """Whether a difference is above zero."""
        low, high = _bounds(difference)
        if low > 0 or high <= 0:
            return low > 0
        shown = other.describe() if isinstance(other, Size) else other
        raise _refuse(f"{self.describe()} {sign} {shown} holds for some shapes of the profile only")

    def __bool__(self) -> bool:
        return True

    # numbers

    def __int__(self) -> NoReturn:
        raise _refuse(f"{self.describe()} must be the same for all shapes of the profile")

    __index__ = __float__ = __int__

    # words

    def describe(self) -> str:
        """A formula for messages."""
        return " + ".join(
            "*".join([*([str(factor)] if factor != 1 or not product else []), *(_describe(atom) for atom in product)])
            for product, factor in self.terms.items()
        )

    def __str__(self) -> str:
        """What stands for it in the text of a kernel, until it has the name of a parameter."""
        return f"«{json.dumps(_encode(self))}»"

    def __format__(self, spec: str) -> str:
        return str(self)

    __repr__ = describe


def make_symbol(name: str, low: int, opt: int, high: int | None) -> int:
    """A dimension of an input that is anywhere between two bounds."""
    end = _UNBOUNDED if high is None else high
    return low if low == end else _make({(_Unknown(name, low, opt, end),): 1})


def size_from_text(text: str) -> int:
    """What ``str`` wrote, without the signs around it."""
    return _decode(json.loads(text))


def _refuse(what: str) -> ProviderError:
    return ProviderError(what, where="provider 'cuda'")


def _describe(atom: _Atom) -> str:
    if isinstance(atom, _Unknown):
        return atom.name
    return f"({_show(atom.of)} // {_show(atom.by)})"


def _show(size: _Number) -> str:
    return size.describe() if isinstance(size, Size) else str(size)


def _encode(size: _Number) -> Any:
    if not isinstance(size, Size):
        return size
    return [[factor, *(atom.encode() for atom in product)] for product, factor in size.terms.items()]


def _decode(stored: Any) -> int:
    if not isinstance(stored, list):
        return int(stored)
    total = 0
    for factor, *atoms in stored:
        total = _add(total, math.prod((_decode_atom(each) for each in atoms), start=factor))
    return total


def _decode_atom(stored: Any) -> int:
    if isinstance(stored[0], str):
        return make_symbol(*stored)
    return _make({(_Floor(*(_decode(part) for part in stored)),): 1})


# arithmetic


def _make(terms: _Terms) -> int:
    """A size of terms that may cancel out; an integer where nothing else is left."""
    left = {product: factor for product, factor in terms.items() if factor}
    if left.keys() <= {()}:
        return left.get((), 0)
    return cast(int, Size(left))


def _terms(size: _Number) -> _Terms:
    return size.terms if isinstance(size, Size) else {(): size}


def _add(first: _Number, second: _Number) -> int:
    terms = dict(_terms(first))
    for product, factor in _terms(second).items():
        terms[product] = terms.get(product, 0) + factor
    return _make(terms)


def _multiply(first: _Number, second: _Number) -> int:
    terms: _Terms = {}
    for (one, a), (two, b) in itertools.product(_terms(first).items(), _terms(second).items()):
        product = _sort((*one, *two))
        terms[product] = terms.get(product, 0) + a * b
    return _make(terms)


def _sort(atoms: Iterable[_Atom]) -> _Product:
    return tuple(sorted(atoms, key=_rank))


def _rank(atom: _Atom) -> str:
    return json.dumps(atom.encode())


def _floor(of: _Number, by: _Number) -> int:
    """Divide and round down; a division by a size that can be zero stays, because a run rejects it where it is."""
    low, high = _bounds(by)
    if is_fixed(by) or low > 0 or high < 0:
        return floor_nonzero(of, by)
    return _make({(_Floor(of, by),): 1})


def floor_nonzero(of: int, by: int) -> int:
    """Divide and round down by a size that is not zero wherever the quotient is used.

    An index is computed where there are elements, so no dimension that it is divided by is zero there. Terms that are
    multiples of the divisor are divided first.
    """
    if is_fixed(of) and is_fixed(by):
        return int(of // by)
    whole, rest = 0, 0
    for product, factor in _terms(of).items():
        part = _make({product: factor})
        even = divide(part, by)
        whole, rest = (_add(whole, even), rest) if even is not None else (whole, _add(rest, part))
    exact = divide(rest, by)
    if exact is not None:
        return _add(whole, exact)
    low, high = _bounds(rest)
    if low >= 0 and _bounds(_add(by, _multiply(rest, -1)))[0] > 0:
        return whole
    if high < 0 and _bounds(_add(by, rest))[0] >= 0:
        return _add(whole, -1)
    return _add(whole, _make({(_Floor(rest, by),): 1}))


def divide(of: int, by: int) -> int | None:
    """A quotient that comes out even for all shapes; None where it need not.

    >>> s = make_symbol("s", 1, 8, 64)
    >>> divide(6 * s * s, 3 * s), divide(s + 1, s)
    (2*s, None)
    """
    if is_fixed(of) and is_fixed(by):
        return of // by if by and of % by == 0 else None
    quotient, rest = 0, of
    while not (is_fixed(rest) and rest == 0):
        part = _divide_term(_lead(rest), _lead(by))
        if part is None:
            return None
        quotient, rest = _add(quotient, part), _add(rest, _multiply(part, _multiply(by, -1)))
    return quotient


def _lead(size: int) -> tuple[_Product, int]:
    """The term of the highest order, which is that of the same order in every product with another size."""
    return max(_terms(size).items(), key=lambda term: (len(term[0]), [_rank(atom) for atom in term[0]]))


def _divide_term(of: tuple[_Product, int], by: tuple[_Product, int]) -> int | None:
    left = list(of[0])
    for atom in by[0]:
        if atom not in left:
            return None
        left.remove(atom)
    return _make({tuple(left): of[1] // by[1]}) if of[1] % by[1] == 0 else None


def find_common(sizes: Sequence[int]) -> int:
    """A factor that all have in common.

    >>> s = make_symbol("s", 1, 8, 64)
    >>> find_common([12 * s, 8 * s * s]), find_common([12, 8])
    (4*s, 4)
    """
    terms = [term for size in sizes for term in _terms(size).items() if term[1]]
    if not terms:
        return 0
    atoms = list(terms[0][0])
    for product, _ in terms[1:]:
        others = list(product)
        atoms = [atom for atom in atoms if atom in others and not others.remove(atom)]  # type: ignore[func-returns-value]
    return _make({_sort(atoms): math.gcd(*(factor for _, factor in terms))})


# what is known


def is_fixed(size: _Number) -> bool:
    """Whether a size is the same for all shapes."""
    return not isinstance(size, Size)


def _bounds(size: _Number) -> tuple[int, int]:
    """What a size may be.

    Every dimension is its least value and the rest; so differences such as ``s*t - s`` are seen to be no less than 0.
    """
    if not isinstance(size, Size):
        return size, size
    shifted: _Terms = {}
    for product, factor in size.terms.items():
        for chosen in itertools.product((True, False), repeat=len(product)):
            rests = _sort(atom for atom, is_rest in zip(product, chosen, strict=True) if is_rest)
            lows = (atom.bounds[0] for atom, is_rest in zip(product, chosen, strict=True) if not is_rest)
            shifted[rests] = shifted.get(rests, 0) + factor * math.prod(lows)
    low = high = shifted.pop((), 0)
    for rests, factor in shifted.items():
        end = factor * math.prod(atom.bounds[1] - atom.bounds[0] for atom in rests)
        low, high = low + min(end, 0), high + max(end, 0)
    return low, high


def least(size: int) -> int:
    """No value of a size is below this."""
    return _bounds(size)[0]


def greatest(size: int) -> int:
    """No value of a size is above this."""
    return _bounds(size)[1]


def estimate(size: int) -> int:
    """What a size is for the shapes to be fast for."""
    if is_fixed(size):
        return size
    return sum(factor * math.prod(atom.estimate for atom in product) for product, factor in _terms(size).items())


def is_below(first: int, second: int) -> bool:
    """Whether a size is less than another for all shapes."""
    if is_fixed(first) and is_fixed(second):
        return first < second
    return least(second - first) > 0


def may_exceed(size: int, number: int) -> bool:
    """Whether a size is above a number for some shapes."""
    return greatest(size) > number


def as_size(number: Any) -> int:
    """A number of any kind as an integer, and a size as it is."""
    return cast(int, number) if isinstance(number, Size) else int(number)


# what a plan stores


def expr_from_size(size: int) -> Expr:
    """Return the expression that the runtime evaluates.

    Raises:
        ProviderError: If the size is too large for a plan.
    """
    try:
        return _convert_size(size)
    except UsageError as error:
        raise _refuse(f"a size with {len(_terms(size))} terms cannot be stored: {error}") from error


def _convert_size(size: int) -> Expr:
    build = IExprBuilder()

    def join(operation: DimensionOperation, parts: Sequence[Expr]) -> Expr:
        made = parts[0]
        for part in parts[1:]:
            made = build.operation(operation, made, part) or made
        return made

    def convert_atom(atom: _Atom) -> Expr:
        if isinstance(atom, _Unknown):
            return Symbol(atom.name)
        return join(DimensionOperation.FLOOR_DIV, [_convert_size(atom.of), _convert_size(atom.by)])

    terms: Mapping[_Product, int] = _terms(size)
    products = [
        join(DimensionOperation.PROD, [*map(convert_atom, product), build.constant(factor)])
        for product, factor in terms.items()
    ]
    return join(DimensionOperation.SUM, products)
