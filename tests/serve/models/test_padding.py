"""Padding: what is added to inputs is cut from outputs, and what cannot be padded is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail_serve.errors import RequestError
from dovetail_serve.models.padding import Padding
from dovetail_serve.models.ports import ModelPorts, Port, UnservableError
from dovetail_serve.repository.settings import PaddedDimension


def port(name: str, *sizes: int) -> Port:
    return Port(name, np.dtype("float32"), "FP32", sizes)


PORTS = ModelPorts((port("ids", -1, -1), port("mask", -1, -1)), (port("total", -1, -1), port("peak", -1, 1)))
BOTH = PaddedDimension(inputs={"ids": 1, "mask": 1}, outputs={"total": 1}, values={"ids": -7}, multiple=4)


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9)), min_size=1, max_size=5))
def test_padding_and_cutting_are_each_others_inverse(shapes: list[tuple[int, int]]) -> None:
    padding = Padding(PORTS, [BOTH])
    requests = [(np.random.rand(*shape).astype("f4"), np.ones(shape, "f4")) for shape in shapes]
    padded = padding.pad(requests)
    longest = -(-max(length for _, length in shapes) // 4) * 4
    for (ids, mask), (long_ids, long_mask) in zip(requests, padded, strict=True):
        assert long_ids.shape == long_mask.shape == (len(ids), longest)
        assert (long_ids[:, ids.shape[1] :] == -7).all()
        assert (long_mask[:, ids.shape[1] :] == 0).all()
        outputs = padding.cut((ids, mask), [long_ids, long_ids[:, :1]])
        assert np.array_equal(outputs[0], ids)
        assert outputs[0].flags.c_contiguous


def test_inputs_of_one_dimension_have_one_size() -> None:
    arrays: list[Any] = [np.zeros((1, 3)), np.zeros((1, 4))]
    with pytest.raises(RequestError, match=r"model 'm', input 'mask', dimension 1: another size.*expected 3, got 4"):
        Padding(PORTS, [BOTH]).check("m", arrays)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (PaddedDimension(inputs={"idz": 1}), "'padding[0]', input: there is no 'idz'; expected ids, mask"),
        (PaddedDimension(inputs={"ids": 2}), "input 'ids': dimension 2 does not vary"),
        (PaddedDimension(inputs={"ids": 1}, outputs={"peak": 1}), "output 'peak': dimension 1 does not vary"),
    ],
)
def test_what_cannot_be_padded_is_named(declared: PaddedDimension, message: str) -> None:
    with pytest.raises(UnservableError) as caught:
        Padding(PORTS, [declared])
    assert message in str(caught.value)
