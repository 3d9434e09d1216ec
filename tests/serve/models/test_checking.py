"""Requests against the inputs and outputs of a model: each mistake is one line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail_serve.errors import RequestError
from dovetail_serve.models.checking import RequestChecker
from dovetail_serve.models.padding import Padding
from dovetail_serve.models.ports import ModelPorts, Port
from dovetail_serve.protocol.requests import InferRequest
from dovetail_serve.repository.settings import PaddedDimension


def port(name: str, sizes: tuple[int, ...], dtype: str = "float32", datatype: str = "FP32") -> Port:
    return Port(name, np.dtype(dtype), datatype, sizes)


PORTS = ModelPorts((port("x", (-1, 3)), port("ids", (-1, -1), "int64", "INT64")), (port("y", (-1, 3)),))
GOOD = {"x": np.zeros((2, 3), np.float32), "ids": np.zeros((2, 5), np.int64)}


def check(inputs: dict[str, Any], *, most: int = 4, padded: tuple[PaddedDimension, ...] = (), **others: Any) -> Any:
    checker = RequestChecker("m", PORTS, most, Padding(PORTS, padded))
    return checker.check(InferRequest("m", inputs, **others))


def test_what_fits_is_given_in_the_order_of_the_engine() -> None:
    pending = check(dict(reversed(GOOD.items())), outputs=["y"])
    assert [array is GOOD[name] for array, name in zip(pending.arrays, ("x", "ids"), strict=True)] == [True, True]
    assert pending.samples == 2


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"x": GOOD["x"]}, "model 'm': nothing was given for 'ids'; expected x, ids"),
        ({**GOOD, "z": GOOD["x"]}, "model 'm': there is no input 'z'; expected x, ids"),
        ({"x": GOOD["x"], "idz": GOOD["ids"]}, "model 'm': there is no input 'idz', did you mean 'ids'?"),
        ({**GOOD, "x": GOOD["x"].astype("f8")}, "model 'm', input 'x': wrong datatype; expected FP32, got FP64"),
        ({**GOOD, "x": np.zeros((2, 4), "f4")}, "model 'm', input 'x': wrong shape; expected [-1, 3], got [2, 4]"),
        ({**GOOD, "x": np.zeros((2,), "f4")}, "model 'm', input 'x': wrong shape; expected [-1, 3], got [2]"),
        ({**GOOD, "x": np.zeros((1, 3), "f4")}, "input 'ids': another number of samples than the first input"),
    ],
)
def test_a_mistake_is_named_on_one_line(inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        check(inputs)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("samples", [0, 5])
def test_samples_are_limited(samples: int) -> None:
    inputs = {"x": np.zeros((samples, 3), "f4"), "ids": np.zeros((samples, 1), "i8")}
    with pytest.raises(RequestError, match="wrong number of samples; expected 1 to 4 in the first dimension"):
        check(inputs)


def test_without_batches_the_first_dimension_is_any() -> None:
    assert check({"x": np.zeros((9, 3), "f4"), "ids": np.zeros((0, 1), "i8")}, most=0).samples == 1


def test_an_output_that_is_not_there_is_named() -> None:
    with pytest.raises(RequestError, match="there is no output 'yy', did you mean 'y'"):
        check(GOOD, outputs=["yy"])


def test_other_bytes_than_texts_are_refused() -> None:
    ports = ModelPorts((port("s", (-1,), "object", "BYTES"),), (port("y", (-1,)),))
    checker = RequestChecker("m", ports, 0, Padding(ports))
    good = np.array(["é".encode(), b""], dtype=object)
    assert checker.check(InferRequest("m", {"s": good})).arrays[0].tolist() == ["é", ""]
    with pytest.raises(RequestError, match="an element is no UTF-8"):
        checker.check(InferRequest("m", {"s": np.array([b"\xff"], dtype=object)}))


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 6), st.integers(0, 6))
def test_groups_are_equal_where_requests_can_run_together(a: int, b: int, short: int, long: int) -> None:
    def make(samples: int, length: int, padded: tuple[PaddedDimension, ...] = ()) -> object:
        inputs = {"x": np.zeros((samples, 3), "f4"), "ids": np.zeros((samples, length), "i8")}
        return check(inputs, padded=padded).group

    padded = (PaddedDimension(inputs={"ids": 1}),)
    assert (make(a, short) == make(b, long)) == (short == long)
    assert make(a, short, padded) == make(b, long, padded)
