"""Tensors of PyTorch in and out of engines, of every type, without a copy where there need be none."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import torch

import dovetail as dt
from dovetail.exchange import view_dlpack

TYPES = (
    *(torch.bool, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    *(torch.float16, torch.float32, torch.float64, torch.bfloat16, torch.complex64, torch.complex128),
    *(torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz, torch.float8_e8m0fnu),
)
ENGINE_TYPES = {
    torch.float32: dt.float32,
    torch.float16: dt.float16,
    torch.bfloat16: dt.bfloat16,
    torch.int8: dt.int8,
    torch.uint8: dt.uint8,
    torch.int32: dt.int32,
    torch.int64: dt.int64,
    torch.bool: dt.bool,
    torch.float8_e4m3fn: dt.fp8,
}


def _identity(kind: dt.DataType) -> dt.Engine:
    network = dt.Builder().create_network()
    x = network.add_input("x", kind, (3, 4))
    network.mark_output(network.add_identity(x).get_output(0))
    return dt.compile(network)


def _bytes(tensor: torch.Tensor) -> list[int]:
    flat = tensor.contiguous().view(torch.uint8).flatten()
    return [int(value) for value in flat]


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_tensors_and_arrays_share_memory_both_ways(kind: torch.dtype) -> None:
    tensor = torch.ones(4, 6).to(kind).t()
    array = view_dlpack(tensor)
    back = torch.from_dlpack(dt.as_dlpack(array))
    assert (back.dtype, back.shape, back.stride()) == (kind, tensor.shape, tensor.stride())
    assert back.data_ptr() == tensor.data_ptr() == array.ctypes.data
    assert _bytes(back) == _bytes(tensor)


def test_memory_of_a_tensor_lives_as_long_as_its_array() -> None:
    tensor = torch.full((1 << 16,), 1.5, dtype=torch.bfloat16)
    array = view_dlpack(tensor)
    del tensor
    gc.collect()
    others = [torch.zeros(1 << 16, dtype=torch.bfloat16) for _ in range(8)]
    assert len(others) == 8
    assert (array.astype(np.float32) == 1.5).all()


@pytest.mark.parametrize("kind", ENGINE_TYPES, ids=str)
def test_engines_take_and_give_them(kind: torch.dtype) -> None:
    tensor = (torch.arange(12).reshape(3, 4) % 2).to(kind)
    with _identity(ENGINE_TYPES[kind]) as engine:
        for given in (tensor, tensor.t().contiguous().t(), torch.stack([tensor, tensor], -1)[..., 0]):
            result = torch.from_dlpack(dt.as_dlpack(engine(given)))
            assert result.dtype == kind
            assert _bytes(result) == _bytes(tensor)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (torch.ones(3, 4, requires_grad=True), r"input 'x': .*require gradient.*\n  fix: pass x\.detach\(\)"),
        (torch.ones(3, 4).to_sparse(), r"input 'x': .*strided.*\n  fix: pass a plain, dense copy"),
        (torch.ones(3, 4, dtype=torch.float64), "expected float32, got float64"),
        (torch.ones(3, 4, device="meta"), "input 'x'"),
    ],
)
def test_what_cannot_be_shared_is_told(tensor: Any, message: str) -> None:
    with _identity(dt.float32) as engine, pytest.raises(dt.InputError, match=message):
        engine(tensor)


def test_a_type_of_pairs_is_told() -> None:
    with pytest.raises(dt.InputError, match="a type of DLPack that has no array"):
        view_dlpack(torch.zeros(4, dtype=torch.float4_e2m1fn_x2))
