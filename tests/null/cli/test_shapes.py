"""The shape mini-language: what it means, and that no text is worse than a clear error."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.cli.shapes import ShapeBounds, format_shape, parse_cases, parse_shapes
from dovetail.errors import UsageError


def _fixed(*shape: int) -> ShapeBounds:
    return ShapeBounds(shape, shape, shape)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["x:1x3x224x224"], {"x": _fixed(1, 3, 224, 224)}),
        (["x:1x3,y:2"], {"x": _fixed(1, 3), "y": _fixed(2)}),
        (["x:1x3", "y:2"], {"x": _fixed(1, 3), "y": _fixed(2)}),
        (["x:1x3:2x3:4x3"], {"x": ShapeBounds((1, 3), (2, 3), (4, 3))}),
        ([" x:1X3 , y:0 "], {"x": _fixed(1, 3), "y": _fixed(0)}),
        (["x:scalar"], {"x": _fixed()}),
        (["input:0:1x3"], {"input:0": _fixed(1, 3)}),
        (["input:0:1x3:2x3:4x3"], {"input:0": ShapeBounds((1, 3), (2, 3), (4, 3))}),
        (["0:1x3"], {"0": _fixed(1, 3)}),
        (["'a,b:1':2"], {"a,b:1": _fixed(2)}),
        (['"input:0":5:6:7'], {"input:0": ShapeBounds((5,), (6,), (7,))}),
        (["a.b/c[0]:1"], {"a.b/c[0]": _fixed(1)}),
        ([], {}),
    ],
)
def test_meaning(texts: list[str], expected: dict[str, ShapeBounds]) -> None:
    assert parse_shapes(texts) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "shapes cannot be read"),
        (",", "shapes cannot be read"),
        ("x:1,", "shapes cannot be read"),
        ("x", "an input has a name or a shape, but not both"),
        ("1x3", "an input has a name or a shape, but not both"),
        ("x:", "a shape cannot be read"),
        ("x:1xax3", "a shape cannot be read; expected sizes .* got '1xax3'"),
        ("x:-1x3", "a shape cannot be read"),
        ("x:1.5", "a shape cannot be read"),
        ("x:1x", "a shape cannot be read"),
        ("x:1x3:2x3", "two shapes for one input"),
        ("x:1,x:2", "input 'x' is named twice"),
        (":1x3", "the name of an input is empty"),
        ("x:99999999999", "a dimension is too large"),
        ("x:2x3:1x3:4x3", "min, opt and max do not fit together"),
        ("x:1x3:1:1x3", "min, opt and max do not fit together"),
        ("'x:1", "a quote is not closed"),
        ("'x'1x3", "a quoted name must be followed by a colon"),
        ("'x':1:2", "an input has one shape or three"),
        ("''", "a quoted name must be followed"),
        ("x:" + "9" * 5000, "a shape cannot be read"),
    ],
)
def test_errors_say_what_and_where(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        parse_shapes([text])
    assert str(caught.value).startswith("--shapes ")
    assert len(str(caught.value)) < 600


def test_the_option_is_named() -> None:
    with pytest.raises(UsageError, match=r"^--profile 'x'"):
        parse_shapes(["x"], option="--profile")


@pytest.mark.parametrize(
    ("texts", "cases"),
    [
        (["2x3"], [((2, 3),)]),
        (["2x3,4"], [((2, 3), (4,))]),
        (["x:2x3,y:4"], [((2, 3), (4,))]),
        (["2x3", "4x3"], [((2, 3),), ((4, 3),)]),
        (["1x3:2x3:4x3,5"], [((2, 3), (5,)), ((1, 3), (5,)), ((4, 3), (5,))]),
        (["x:1:2:4"], [((2,),), ((1,),), ((4,),)]),
        (["scalar"], [((),)]),
    ],
)
def test_cases(texts: list[str], cases: list[tuple[tuple[int, ...], ...]]) -> None:
    assert parse_cases(texts) == cases


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_shapes, parse_cases):
        with contextlib.suppress(UsageError):
            parse([text])


@given(st.text(alphabet="x:,'\"019 as-", max_size=24))
def test_any_likely_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_shapes, parse_cases):
        with contextlib.suppress(UsageError):
            parse([text])


NAMES = st.text(st.characters(exclude_characters="'\""), min_size=1)
SHAPES = st.lists(st.integers(0, 2**31 - 1), max_size=8).map(tuple)


@given(st.dictionaries(NAMES, SHAPES, min_size=1, max_size=4))
def test_quoted_names_come_back(shapes: dict[str, tuple[int, ...]]) -> None:
    text = ",".join(f"'{name}':{format_shape(shape)}" for name, shape in shapes.items())
    assert parse_shapes([text]) == {name: _fixed(*shape) for name, shape in shapes.items()}
