"""The ways of attention one by one in Triton's interpreter, against the kernels of ``cpu``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes  # noqa: F401
import numpy as np
import onnx
import onnx_ir as ir

import dovetail
from dovetail_cuda.graph.attention import AttentionRegion
from dovetail_cuda.graph.computed import ComputedRegion
from dovetail_cuda.graph.planner import plan_partition
from dovetail_cuda.tune.kit import Kit
from dovetail_cuda.tune.products import LibraryDraft
from dovetail_cuda.tune.questions import Draft, KernelDraft
from dovetail_cuda.tune.steps import ShiftedDraft
from dovetail_cuda.tune.tasks import make_task
from tests.cuda.host.fake_driver import FakeDriver
from tests.cuda.host.fake_provider import FakeProducts
from tests.cuda.host.interpreter import FakeCode, run_kernel

_RNG = np.random.default_rng(21)
TILES = {"attention 32x32 w4 s2", "attention 16x64 w4 s2", "attention 64x32 w4 s3", "attention 16x128 w4 s1"}
"""Of the ways, those that tests run: what the interpreter does takes long."""


def make_inputs(model: onnx.ModelProto) -> dict[str, Any]:
    made = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        shape = [dim.dim_value for dim in kind.shape.dim]
        is_number = np.issubdtype(dtype, np.integer)
        drawn = _RNG.random(shape) > 0.5 if dtype == np.bool_ else _RNG.standard_normal(shape)
        drawn = _RNG.integers(0, 3, shape) if is_number else drawn
        made[value.name] = drawn.astype(dtype)
    return made


def make_kit(multiprocessors: int) -> Kit:
    """What ways are made with, for a device with so many multiprocessors."""
    return Kit(
        capability=90,
        multiprocessors=multiprocessors,
        allows_tf32=False,
        weights=frozenset(),
        is_cold=False,
        open_products=lambda: FakeProducts(FakeDriver()),
    )


def _list(results: Any) -> list[Any]:
    return list(results.values()) if isinstance(results, dict) else [results]


def _run(draft: Draft, arrays: dict[str, Any], shifts: tuple[int, ...] = ()) -> None:
    if isinstance(draft, ShiftedDraft):
        _run(replace(draft.draft, roles=draft.roles), arrays, draft.shifts)
        return
    assert isinstance(draft, KernelDraft)
    places = [arrays[role].ctypes.data for role in draft.roles]
    shifted = [place + shift for place, shift in zip(places, shifts or (0,) * len(places), strict=True)]
    run_kernel(FakeCode(draft.request), shifted, draft.grid)


def find_attention(model: onnx.ModelProto) -> AttentionRegion:
    (region,) = [r for r in plan_partition(ir.from_proto(model)).regions if isinstance(r, AttentionRegion)]
    return region


def check_ways(model: onnx.ModelProto, inputs: dict[str, Any], tolerance: float, multiprocessors: int = 2) -> set[str]:
    """Run ways one by one and compare with ``cpu``; gives the names of all."""
    expected = _list(dovetail.compile(model, providers=["cpu"])(*inputs.values()))[0]
    regions = plan_partition(ir.from_proto(model)).regions
    (region,) = [each for each in regions if isinstance(each, AttentionRegion | ComputedRegion)]
    task = make_task(region, make_kit(multiprocessors))
    ways = task.question.make_ways()
    for way in [way for way in ways if way.name in TILES or not way.name.startswith("attention") or way.drafts[1:]]:
        if any(isinstance(each, ShiftedDraft) and isinstance(each.draft, LibraryDraft) for each in way.drafts):
            continue
        buffers = {role: place.buffer for role, place in task.places.items()}
        known = {**inputs, **{each.name: onnx.numpy_helper.to_array(each) for each in model.graph.initializer}}
        arrays = {role: np.ascontiguousarray(known[name]) for role, name in buffers.items() if name in known}
        arrays |= {role: np.full(each.size_bytes, 0xFF, np.uint8) for role, each in way.temporaries.items()}
        (result,) = [role for role in buffers if role not in arrays]
        arrays[result] = np.full(expected.shape, np.nan, expected.dtype)
        for draft in way.drafts:
            _run(draft, arrays)
        wide = arrays[result].astype(np.float64), expected.astype(np.float64)
        np.testing.assert_allclose(*wide, rtol=tolerance, atol=tolerance, err_msg=way.name)
    return {way.name for way in ways}
