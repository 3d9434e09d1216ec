"""The shapes that providers are told: true bounds over a whole profile, and over several of them."""

from __future__ import annotations

from dovetail.build.shapes import Ranges, unite_shapes
from dovetail.expr import Constant, DimensionOperation, Expr, Operation, Symbol
from dovetail.provider.interfaces import ShapeRange

N = Symbol("n")


def _subtract(first: int, second: Expr) -> Expr:
    return Operation(DimensionOperation.SUB, Constant(first), second)


def test_a_dimension_that_shrinks_with_its_symbol_has_its_bounds_the_right_way_round() -> None:
    shapes = Ranges({"n": (2, 3, 5)}).cover([N, _subtract(10, N), Constant(4)])
    assert shapes == ShapeRange(min=(2, 5, 4), opt=(3, 7, 4), max=(5, 8, 4))


def test_sizes_are_never_negative() -> None:
    assert Ranges({"n": (2, 3, 5)}).cover([_subtract(3, N)]).min == (0,)


def test_what_has_no_bound_or_is_not_known_has_no_largest() -> None:
    shapes = Ranges({"n": (1, 1, -1)}).cover([N, None, Symbol("other"), Constant(8)])
    assert shapes == ShapeRange(min=(1, 0, 0, 8), opt=(1, 1, 1, 8), max=(None, None, None, 8))
    assert not shapes.is_fixed


def test_several_profiles_together() -> None:
    first = {"x": ShapeRange(min=(2, 8), opt=(3, 8), max=(4, 8)), "y": ShapeRange(min=(1,), opt=(1,), max=(9,))}
    second = {"x": ShapeRange(min=(1, 8), opt=(6, 8), max=(7, 8)), "y": ShapeRange(min=(0,), opt=(5,), max=(None,))}
    assert unite_shapes([first, second]) == {
        "x": ShapeRange(min=(1, 8), opt=(3, 8), max=(7, 8)),
        "y": ShapeRange(min=(0,), opt=(1,), max=(None,)),
    }
    assert unite_shapes([]) == {}
