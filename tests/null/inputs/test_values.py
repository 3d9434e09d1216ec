"""Values as people write them: exact, or refused with the reason; and values that are made for a shape."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dovetail.errors import InputError, UsageError
from dovetail.inputs.element_values import convert_value
from dovetail.inputs.feeds import make_feeds
from dovetail.inputs.made_values import parse_made_value
from dovetail.inputs.specs import InputSpec
from tests.support.dims import read_dims


def spec_of(dtype: str, dims: list[Any] | None = None, kind: str = "") -> InputSpec:
    return InputSpec(name="x", dtype=dtype, dims=None if dims is None else read_dims(dims), type=kind)


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from(["float32", "float16", "int64", "uint8", "int8", "bool", "float64", "uint64"]).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, max_side=3))
    )
)
def test_what_an_array_lists_comes_back(array: np.ndarray) -> None:
    texts = {"nan": "nan", "inf": "inf", "-inf": "-inf"}

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(item) for item in value]
        return texts.get(str(value), value) if isinstance(value, float) else value

    value = json.loads(json.dumps(plain(array.tolist())))
    converted = convert_value(value, spec_of(array.dtype.name))
    assert converted.dtype == array.dtype
    np.testing.assert_array_equal(converted, array)


@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        (1.5, "int64", "whole numbers of int64"),
        ([1e39], "float32", "expected numbers of float32, got 1e+39"),
        (256, "uint8", "from 0 to 255, got 256"),
        (-1, "uint8", "from 0 to 255"),
        (8, "int4", "from -8 to 7"),
        (True, "int64", "whole numbers"),
        ("a", "float32", "numbers of float32"),
        ("a", "int32", "whole numbers"),
        (1e6, "float16", "numbers of float16, got"),
        (10**400, "float32", "numbers of float32"),
        (None, "float32", "numbers of float32, got None"),
        (2, "bool", "true or false"),
        (3, "object", "texts in quotes"),
        ([[1], [2, 3]], "float32", "element 1 of a list has another shape than element 0; expected 1, got 2"),
        ([1, [2]], "float32", "expected one element, got 1"),
    ],
)
def test_what_does_not_fit_is_refused(value: Any, dtype: str, message: str) -> None:
    with pytest.raises(InputError, match="input 'x'") as caught:
        convert_value(value, spec_of(dtype))
    assert message in str(caught.value)


def test_narrow_types_sequences_and_maps() -> None:
    assert convert_value([1, 2.5], spec_of("bfloat16")).dtype == np.dtype(ml_dtypes.bfloat16)
    assert convert_value([-8, 7], spec_of("int4")).astype(int).tolist() == [-8, 7]
    assert convert_value(["a", ""], spec_of("object")).tolist() == ["a", ""]
    assert convert_value(3.0, spec_of("int32")).tolist() == 3
    assert np.isnan(convert_value("nan", spec_of("float32")))
    items = convert_value([[1], [2, 3]], spec_of("float32", kind="seq(tensor(float))"))
    assert [item.tolist() for item in items] == [[1.0], [2.0, 3.0]]
    assert convert_value({"3": 0.5}, spec_of("float32", kind="map(int64,tensor(float))")) == {3: 0.5}
    assert convert_value({"a": 2}, spec_of("int64", kind="map(string,tensor(int64))")) == {"a": 2}
    for value, kind in ((3, "seq(tensor(float))"), (3, "map(int64,tensor(float))"), ({"a": 1}, "map(int64,x)")):
        with pytest.raises(InputError):
            convert_value(value, spec_of("float32", kind=kind))


@pytest.mark.parametrize(
    "dtype", ["uint8", "int8", "float32", "float16", "bfloat16", "bool", "int64", "uint64", "int4"]
)
def test_uniform_draws_lie_in_the_range(dtype: str) -> None:
    spec = spec_of(dtype, [1000])
    low, high = (0, 1) if dtype == "bool" else (2, 5)
    made = parse_made_value(f"uniform({low},{high})", spec)
    first, same = (make_feeds([spec], given={"x": made}, seed=3)["x"] for _ in range(2))
    assert first.dtype.name == dtype
    assert first.shape == (1000,)
    numbers = first.astype(np.float64)
    assert low <= numbers.min() < numbers.max() <= high
    np.testing.assert_array_equal(first, same)
    if dtype in ("uint8", "int64"):
        assert set(numbers) == {2, 3, 4, 5}


def test_the_ends_of_wide_types_are_in_range() -> None:
    for dtype in ("int64", "uint64"):
        limits = np.iinfo(dtype)
        made = parse_made_value(f"uniform({limits.min},{limits.max})", spec_of(dtype, [10]))
        assert make_feeds([spec_of(dtype, [10])], given={"x": made})["x"].dtype == dtype


def test_other_values_that_are_made() -> None:
    spec = spec_of("float32", [10000])
    drawn = make_feeds([spec], given={"x": parse_made_value("normal(3,0.5)", spec)})["x"]
    assert abs(drawn.mean() - 3) < 0.05
    assert abs(drawn.std() - 0.5) < 0.05
    for text, value in (("zeros", 0), ("ones", 1)):
        assert set(make_feeds([spec], given={"x": parse_made_value(text, spec)})["x"].tolist()) == {value}
    assert parse_made_value("uniform.npy", spec) is None
    assert parse_made_value("a/normal(1,2)", spec) is None


@pytest.mark.parametrize(
    ("text", "dtype", "message"),
    [
        ("uniform(1)", "float32", "values cannot be made"),
        ("uniform(1,2,3)", "float32", "values cannot be made"),
        ("zeros(1)", "float32", "values cannot be made"),
        ("uniform(a,b)", "float32", "a number cannot be read"),
        ("uniform(0,inf)", "float32", "a number cannot be read"),
        ("uniform(2,1)", "float32", "the lower end is above the upper one"),
        ("normal(0,-1)", "float32", "the deviation is negative"),
        ("uniform(0,256)", "uint8", "an element does not fit the type"),
        ("uniform(0,1.5)", "int8", "an element does not fit the type"),
        ("normal(0,1)", "int8", "normal draws are floats"),
        ("uniform(0,1)", "object", "numbers cannot be drawn for it"),
    ],
)
def test_ranges_that_are_wrong(text: str, dtype: str, message: str) -> None:
    spec = spec_of(dtype, [2])
    with pytest.raises((InputError, UsageError), match="input 'x'") as caught:
        make_feeds([spec], given={"x": parse_made_value(text, spec)})
    assert message in str(caught.value)


def test_nothing_absurd_is_made() -> None:
    spec = spec_of("float32", [2**20, 2**20])
    for text in ("zeros", "uniform(0,1)", "normal(0,1)"):
        with pytest.raises(InputError, match="nothing of this size is made up"):
            make_feeds([spec], given={"x": parse_made_value(text, spec)})
