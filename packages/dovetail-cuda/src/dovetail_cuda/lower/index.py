"""Integer expressions that say where an element lies: sums of variables, quotients and remainders by sizes.

They are kept in a simple form as they are made, so that an index which takes a flat position apart and puts it together
again is that position. Every variable has bounds, which decide most quotients and remainders. Factors, divisors and
bounds are integers, or sizes that vary (``lower.sizes``): then what holds for all of them is made simple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.errors import ProviderError
from dovetail_cuda.lower.sizes import divide, find_common, floor_nonzero, is_below, is_fixed, least, may_exceed

if TYPE_CHECKING:
    from dovetail_cuda.lower.expr import Expr

__all__ = [
    "Atom",
    "Gathered",
    "Index",
    "Quotient",
    "Remainder",
    "Var",
    "flatten",
    "flatten_by",
    "map_atoms",
    "replace_variables",
    "unflatten",
    "unflatten_by",
]


@dataclass(frozen=True)
class Var:
    """A loop variable from 0 on."""

    name: str
    size: int

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest value."""
        return 0, _last(self.size)


@dataclass(frozen=True)
class Gathered:
    """An index that is itself an element of a tensor; whoever makes it knows its bounds."""

    value: Expr
    size: int

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest value."""
        return 0, _last(self.size)


@dataclass(frozen=True)
class Quotient:
    """A floor division that does not come out even."""

    of: Index
    by: int

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest value."""
        low, high = self.of.bounds
        return floor_nonzero(low, self.by), floor_nonzero(high, self.by)


@dataclass(frozen=True)
class Remainder:
    """What such a division leaves."""

    of: Index
    by: int

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest value."""
        return 0, self.by - 1


Atom = Var | Gathered | Quotient | Remainder
Term = tuple[Atom, int]


@dataclass(frozen=True)
class Index:
    """A sum of atoms with factors, and a constant.

    >>> flat = Index.variable("i", 24)
    >>> flatten(unflatten(flat, (2, 3, 4)), (2, 3, 4)) == flat
    True
    """

    terms: tuple[Term, ...] = ()
    constant: int = 0

    @classmethod
    def variable(cls, name: str, size: int) -> Index:
        """A loop variable, or 0 where it has only that value."""
        return cls(((Var(name, size), 1),)) if may_exceed(size, 1) else cls()

    @classmethod
    def gathered(cls, value: Expr, size: int) -> Index:
        """An index that an element of a tensor gives."""
        return cls(((Gathered(value, size), 1),))

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest value it can have."""
        low = high = self.constant
        for atom, factor in self.terms:
            first, last = atom.bounds
            ends = (factor * first, factor * last)
            low, high = (low + ends[0], high + ends[1]) if factor >= 0 else (low + ends[1], high + ends[0])
        return low, high

    def __add__(self, other: Index | int) -> Index:
        if not isinstance(other, Index):
            return Index(self.terms, self.constant + other)
        return _collect((*self.terms, *other.terms), self.constant + other.constant)

    def __sub__(self, other: Index | int) -> Index:
        return self + other * -1

    def __mul__(self, factor: int) -> Index:
        if not factor:
            return Index()
        return Index(tuple((atom, factor * each) for atom, each in self.terms), self.constant * factor)

    def __floordiv__(self, by: int) -> Index:
        if _is_negative_divisor(by):
            return (self * -1) // -by
        even = [(atom, quotient) for atom, factor in self.terms if (quotient := divide(factor, by)) is not None]
        left = tuple(term for term in self.terms if divide(term[1], by) is None)
        whole, rest = _split(self.constant, by)
        return _collect(even, whole) + _divide(Index(left, rest), by)

    def __mod__(self, by: int) -> Index:
        if _is_negative_divisor(by):
            return ((self * -1) % -by) * -1
        terms = tuple((atom, _split(factor, by)[1]) for atom, factor in self.terms if divide(factor, by) is None)
        rest, _ = _lift(Index(terms, _split(self.constant, by)[1]), by)
        low, high = rest.bounds
        if least(low) >= 0 and is_below(high, by):
            return rest
        common = find_common([by, rest.constant, *(factor for _, factor in rest.terms)])
        if common != 1:
            return _shrink(rest, common) % floor_nonzero(by, common) * common
        steps = _find_steps(rest, by)
        if steps is not None:
            coarse, fine, step = steps
            return coarse % (by // step) * step + fine
        atom = rest.single
        if isinstance(atom, Remainder) and divide(atom.by, by) is not None:
            return atom.of % by
        return Index(((Remainder(rest, by), 1),))

    @property
    def single(self) -> Atom | None:
        """The atom, where it is nothing but one."""
        is_single = len(self.terms) == 1 and not self.constant and self.terms[0][1] == 1
        return self.terms[0][0] if is_single else None


def _is_negative_divisor(by: int) -> bool:
    """True for a negative integer: quotients and remainders are kept for positive divisors only.

    Raises:
        ProviderError: If the divisor is zero.
    """
    if is_fixed(by) and by == 0:
        raise ProviderError("an index is divided by zero", where="provider 'cuda'")
    return is_fixed(by) and by < 0


def _last(size: int) -> int:
    """The greatest number below a size; a size that varies has one, for nothing is done where there are no elements."""
    return max(size - 1, 0) if is_fixed(size) else size - 1


def _split(number: int, by: int) -> tuple[int, int]:
    """A number as a multiple and the rest; with sizes that vary, all of it is the rest where it is no multiple."""
    if is_fixed(number) and is_fixed(by):
        return number // by, number % by
    even = divide(number, by)
    return (0, number) if even is None else (even, 0)


def _divide(rest: Index, by: int) -> Index:
    """Divide what has no factor that the divisor divides."""
    low, high = rest.bounds
    first, last = floor_nonzero(low, by), floor_nonzero(high, by)
    if first == last:
        return Index((), first)
    common = find_common([by, rest.constant, *(factor for _, factor in rest.terms)])
    if common != 1:
        return _shrink(rest, common) // floor_nonzero(by, common)
    steps = _find_steps(rest, by)
    if steps is not None:
        coarse, _, step = steps
        return coarse // (by // step)
    rest, added = _lift(rest, by)
    if added:
        # Dividing again would take an integer multiple of the divisor out again.
        return Index(((Quotient(rest, by), 1),), -added) if is_fixed(by) else rest // by - added
    atom = rest.single
    if isinstance(atom, Quotient):
        return atom.of // (atom.by * by)
    if isinstance(atom, Remainder) and divide(atom.by, by) is not None:
        return (atom.of // by) % floor_nonzero(atom.by, by)
    return Index(((Quotient(rest, by), 1),))


def _find_steps(rest: Index, by: int) -> tuple[Index, Index, int] | None:
    """An index as a number of steps and what is less than one step, where steps divide the divisor."""
    if not is_fixed(by):
        return None
    factors = {factor for _, factor in rest.terms if is_fixed(factor) and factor > 1 and by % factor == 0}
    for step in sorted(factors, reverse=True):
        coarse = tuple((atom, even) for atom, factor in rest.terms if (even := divide(factor, step)) is not None)
        fine = Index(tuple(term for term in rest.terms if divide(term[1], step) is None), rest.constant)
        low, high = fine.bounds
        if least(low) >= 0 and is_below(high, step):
            return Index(coarse), fine, step
    return None


def _lift(rest: Index, by: int) -> tuple[Index, int]:
    """Add divisors to a dividend until it is never negative, because devices round quotients towards zero.

    Returns:
        The dividend, and the number of divisors added.

    Raises:
        ProviderError: If the number of divisors depends on sizes that vary.
    """
    low = rest.bounds[0]
    if least(low) >= 0:
        return rest, 0
    if is_fixed(by) and is_fixed(low):
        count = -(low // by)
        return rest + by * count, count
    if least(low + by) >= 0:
        return rest + by, 1
    raise ProviderError(f"an index by {by!r} may be far below zero", where="provider 'cuda'")


def _shrink(index: Index, common: int) -> Index:
    terms = tuple((atom, floor_nonzero(factor, common)) for atom, factor in index.terms)
    return Index(terms, floor_nonzero(index.constant, common))


def _collect(terms: Iterable[Term], constant: int) -> Index:
    """Add equal atoms up, and put quotients and remainders of the same thing together again."""
    factors: dict[Atom, int] = {}
    for atom, factor in terms:
        factors[atom] = factors.get(atom, 0) + factor
    factors = {atom: factor for atom, factor in factors.items() if factor}
    for atom, factor in factors.items():
        if isinstance(atom, Remainder):
            above = atom.of // atom.by
            others = [each for each, times in factors.items() if times == factor * atom.by]
            partner = next((each for each in others if _is_of(each, above)), None)
            if partner is not None:
                whole = atom.of % (atom.by * partner.by) if isinstance(partner, Remainder) else atom.of
                left = [(each, times) for each, times in factors.items() if each not in (atom, partner)]
                return _collect((*left, *(whole * factor).terms), constant + whole.constant * factor)
    return Index(tuple(factors.items()), constant)


def _is_of(atom: Atom, index: Index) -> bool:
    """Whether an atom is an index, or what a division of it leaves."""
    return index.single == atom or (isinstance(atom, Remainder) and atom.of == index)


def replace_variables(index: Index, places: Mapping[str, Index]) -> Index:
    """An index over other variables."""
    found = Index((), index.constant)
    for atom, factor in index.terms:
        found = found + _replace(atom, places) * factor
    return found


def _replace(atom: Atom, places: Mapping[str, Index]) -> Index:
    match atom:
        case Var() if atom.name in places:
            return places[atom.name]
        case Quotient():
            return replace_variables(atom.of, places) // atom.by
        case Remainder():
            return replace_variables(atom.of, places) % atom.by
        case _:
            return Index(((atom, 1),))


def map_atoms(index: Index, change: Callable[[Expr], Expr]) -> Index:
    """An index in which the elements that it loads are others."""
    if not any(isinstance(atom, Gathered | Quotient | Remainder) for atom, _ in index.terms):
        return index
    found = Index((), index.constant)
    for atom, factor in index.terms:
        match atom:
            case Gathered():
                part = Index.gathered(change(atom.value), atom.size)
            case Quotient():
                part = map_atoms(atom.of, change) // atom.by
            case Remainder():
                part = map_atoms(atom.of, change) % atom.by
            case _:
                part = Index(((atom, 1),))
        found = found + part * factor
    return found


def unflatten(flat: Index, shape: Sequence[int]) -> tuple[Index, ...]:
    """The coordinates of a flat position, row by row."""
    coordinates: list[Index] = []
    for size in reversed(shape):
        coordinates.append(flat % size if may_exceed(size, 1) else Index())
        flat = flat // (size if may_exceed(size, 1) else 1)
    return tuple(reversed(coordinates))


def flatten(coordinates: Sequence[Index], shape: Sequence[int]) -> Index:
    """The flat position of coordinates, row by row."""
    flat = Index()
    for coordinate, size in zip(coordinates, shape, strict=True):
        flat = flat * size + coordinate
    return flat


def unflatten_by(flat: Index, shape: Sequence[int], order: Sequence[int]) -> tuple[Index, ...]:
    """The coordinates of a flat position, row by row with the dimensions in an order."""
    places = dict(zip(order, unflatten(flat, [shape[axis] for axis in order]), strict=True))
    return tuple(places[axis] for axis in range(len(shape)))


def flatten_by(coordinates: Sequence[Index], shape: Sequence[int], order: Sequence[int]) -> Index:
    """The flat position of coordinates, row by row with the dimensions in an order."""
    return flatten([coordinates[axis] for axis in order], [shape[axis] for axis in order])
