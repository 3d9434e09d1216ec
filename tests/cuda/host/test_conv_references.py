"""Every candidate that is proposed for a convolution, one by one in Triton's interpreter, against plain NumPy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from dovetail.provider.interfaces import PackedWeight
from dovetail_cuda.compile.source import Tile, write_kernel
from dovetail_cuda.emit.kernels import request_text
from dovetail_cuda.graph.plan import PartitionPlan
from dovetail_cuda.graph.planner import plan_partition
from dovetail_cuda.graph.regions import ConvRegion, ElementRegion
from dovetail_cuda.lower.types import size_of
from dovetail_cuda.tune.convolutions import make_conv_task
from dovetail_cuda.tune.questions import KernelDraft, Task, Way
from tests.cuda.host.interpreter import FakeCode, run_kernel
from tests.cuda.host.ways import make_kit

ACTIVATIONS: dict[str, Any] = {
    "": lambda x: x,
    "Relu": lambda x: np.maximum(x, 0),
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "Tanh": np.tanh,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


@dataclass(frozen=True)
class Case:
    image: tuple[int, ...]
    filters: int
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    group: int = 1
    has_bias: bool = False
    has_residual: bool = False
    activation: str = ""
    dtype: str = "float32"


CASES = {
    "1x1": Case((2, 33, 5, 7), 19, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    "1x1 strided": Case((1, 32, 7, 9), 40, (1, 1), (2, 2), (0, 0, 0, 0), (1, 1), has_bias=True),
    "3x3": Case((1, 17, 7, 5), 21, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), has_bias=True, activation="Relu"),
    "3x3 deep": Case((1, 96, 4, 5), 20, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), has_bias=True),
    "uneven": Case((1, 16, 9, 11), 18, (3, 2), (2, 3), (0, 1, 2, 0), (1, 1), activation="Tanh"),
    "dilated": Case((1, 16, 9, 9), 16, (3, 3), (1, 1), (2, 1, 2, 1), (2, 1), has_bias=True, activation="HardSwish"),
    "residual": Case(
        (1, 32, 5, 6), 24, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), has_bias=True, has_residual=True, activation="Relu"
    ),
    "grouped": Case(
        (1, 24, 5, 6), 36, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), group=4, has_bias=True, activation="Sigmoid"
    ),
    "depthwise": Case((1, 21, 7, 9), 21, (5, 5), (2, 2), (2, 2, 2, 2), (1, 1), group=21, activation="HardSwish"),
    "depthwise with a residual": Case(
        (2, 18, 6, 5), 18, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), group=18, has_bias=True, has_residual=True
    ),
    "two for a channel": Case((1, 9, 6, 5), 18, (3, 3), (1, 1), (2, 2, 2, 2), (2, 2), group=9),
    "stem": Case((1, 3, 17, 19), 20, (7, 7), (2, 2), (3, 3, 3, 3), (1, 1), has_bias=True, activation="Relu"),
    "one dimension": Case((2, 9, 41), 33, (5,), (2,), (1, 2), (2,), has_bias=True),
    "half": Case(
        (1, 24, 6, 5), 17, (3, 3), (1, 1), (1, 0, 1, 2), (1, 1), has_bias=True, has_residual=True, dtype="float16"
    ),
}


@pytest.fixture(autouse=True)
def _small_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small images are convolved as large ones are, so that they can be interpreted."""
    monkeypatch.setattr("dovetail_cuda.lower.convolution._SMALL", 1)
    monkeypatch.setattr("dovetail_cuda.lower.convolution._MANY_PIXELS", 1)


# the reference


def _convolve(case: Case, x: Any, w: Any) -> Any:
    """Sums over the places of the window, in double precision."""
    rank = len(case.kernel)
    edges = [(case.pads[axis], case.pads[axis + rank]) for axis in range(rank)]
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *edges])
    reach = [d * (k - 1) + 1 for d, k in zip(case.dilations, case.kernel, strict=True)]
    sizes = [(padded.shape[2 + a] - reach[a]) // case.strides[a] + 1 for a in range(rank)]
    made = np.zeros((x.shape[0], case.filters, *sizes))
    deep, each = w.shape[1], case.filters // case.group
    for group, tap in itertools.product(range(case.group), np.ndindex(*case.kernel)):
        starts = [tap[a] * case.dilations[a] for a in range(rank)]
        window = tuple(slice(s, s + (n - 1) * t + 1, t) for s, n, t in zip(starts, sizes, case.strides, strict=True))
        part = padded[(slice(None), slice(group * deep, (group + 1) * deep), *window)]
        own = slice(group * each, (group + 1) * each)
        made[:, own] += np.einsum("nc...,fc->nf...", part, w[(own, slice(None), *tap)].astype(np.float64))
    return made


def _expect(case: Case, arrays: dict[str, Any]) -> Any:
    made = _convolve(case, arrays["x"], arrays["w"])
    if case.has_bias:
        made = made + arrays["b"].astype(np.float64).reshape(1, -1, *(1,) * len(case.kernel))
    if case.has_residual:
        made = made + arrays["r"].astype(np.float64)
    return ACTIVATIONS[case.activation](made)


# the model


def _make_model(case: Case) -> tuple[onnx.ModelProto, dict[str, Any]]:
    rng, kind = np.random.default_rng(5), helper.np_dtype_to_tensor_dtype(np.dtype(case.dtype))

    def draw(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(case.dtype)

    arrays = {"x": draw(*case.image), "w": draw(case.filters, case.image[1] // case.group, *case.kernel)}
    shape = _convolve(case, arrays["x"], arrays["w"]).shape
    arrays |= {"b": draw(case.filters)} if case.has_bias else {}
    arrays |= {"r": draw(*shape)} if case.has_residual else {}
    given = ["x", "w", *(["b"] if case.has_bias else [])]
    settings = {"strides": case.strides, "pads": case.pads, "dilations": case.dilations, "group": case.group}
    nodes = [helper.make_node("Conv", given, ["c"], **settings)]
    nodes += [helper.make_node("Add", ["c", "r"], ["s"])] if case.has_residual else []
    nodes += [helper.make_node(case.activation or "Identity", [nodes[-1].output[0]], ["y"])]
    inputs = [helper.make_tensor_value_info(n, kind, arrays[n].shape) for n in ("x", "r") if n in arrays]
    output = helper.make_tensor_value_info("y", kind, shape)
    weights = [numpy_helper.from_array(arrays[n], n) for n in ("w", "b") if n in arrays]
    graph = helper.make_graph(nodes, "g", inputs, [output], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    assert kind in (TensorProto.FLOAT, TensorProto.FLOAT16)
    return model, arrays


# ways


def _fill_buffers(plan: PartitionPlan, arrays: dict[str, Any]) -> dict[str, Any]:
    """Memory for every buffer of a plan; what nobody wrote is no number."""
    made = {name: np.full(math.prod(b.shape) * size_of(b.dtype), 0xFF, np.uint8) for name, b in plan.buffers.items()}
    for name, weight in plan.weights.items():
        array = weight.array if isinstance(weight, PackedWeight) else weight
        made[name] = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
    made |= {name: np.ascontiguousarray(arrays[name]).view(np.uint8).reshape(-1) for name in plan.inputs}
    return made


def _run(request: Any, grid: tuple[int, int, int], buffers: Sequence[Any]) -> None:
    run_kernel(FakeCode(request), [each.ctypes.data for each in buffers], grid)


def _run_elements(region: ElementRegion, memory: dict[str, Any]) -> None:
    text = write_kernel(region, Tile(rows=64, columns=64 if region.rows else 1))
    _run(request_text(text, 90), text.grid, [memory[name] for name in text.buffers])


def _run_way(task: Task, way: Way, memory: dict[str, Any]) -> None:
    roles = {role: memory[place.buffer] for role, place in task.places.items()}
    for role, each in way.temporaries.items():
        roles[role] = np.full(each.size_bytes, 0 if each.is_zeroed else 0xFF, np.uint8)
    for draft in way.drafts:
        assert isinstance(draft, KernelDraft)
        _run(draft.request, draft.grid, [roles[role] for role in draft.roles])
    zeroed = [roles[role] for role, each in way.temporaries.items() if each.is_zeroed]
    assert not any(each.any() for each in zeroed), f"{way.name} leaves its locks"


@pytest.mark.parametrize("name", list(CASES))
def test_every_candidate_gives_what_numpy_gives(name: str) -> None:
    case = CASES[name]
    model, arrays = _make_model(case)
    expected = _expect(case, arrays)
    plan = plan_partition(ir.from_proto(model))
    memory = _fill_buffers(plan, arrays)
    *before, region = plan.regions
    assert isinstance(region, ConvRegion)
    for each in before:
        assert isinstance(each, ElementRegion)
        _run_elements(each, memory)
    task = make_conv_task(region, make_kit(multiprocessors=16))
    ways = task.question.make_ways()
    assert len(ways) >= 2
    tolerance = 2e-2 if case.dtype == "float16" else 1e-4
    for way in ways:
        memory["y"][:] = 0xFF
        _run_way(task, way, memory)
        result = memory["y"].view(case.dtype).reshape(expected.shape).astype(np.float64)
        np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance, err_msg=way.name)


def test_candidates_of_every_kind_are_among_them() -> None:
    """Splits, tiles of several sizes, and kernels that start early."""
    names: set[str] = set()
    for case in CASES.values():
        region = plan_partition(ir.from_proto(_make_model(case)[0])).regions[-1]
        assert isinstance(region, ConvRegion)
        names |= {way.name for way in make_conv_task(region, make_kit(multiprocessors=16)).question.make_ways()}
    assert len(names) > 20
    assert any("split" in name for name in names), names
    assert any("early" in name for name in names), names
