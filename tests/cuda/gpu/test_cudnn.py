"""Convolutions by plans of cuDNN on a GPU: right in every form and type, the same in every run, saved and loaded."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import onnx
import pytest

import dovetail as dt
from dovetail.errors import PlanCorruptError
from dovetail_cuda.run.convolutions import Convolution
from dovetail_cuda.run.cudnn import ConvSearch, Cudnn, is_cudnn_here
from dovetail_cuda.tune import convolutions
from tests.cuda.gpu.conv_rows import Row, list_conv_tables, make_model
from tests.cuda.gpu.test_convolutions import _make_inputs

pytestmark = pytest.mark.skipif(not is_cudnn_here(), reason="the front end of cuDNN is not here")

ERRORS = {"float": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}
"""The largest difference from the reference, in norms."""
ROWS = {
    "3x3": Row(64, 64, 56, kernel=3, follower="relu"),
    "3x3 strided": Row(128, 128, 56, kernel=3, stride=2, follower="relu"),
    "1x1": Row(256, 64, 56, follower="relu"),
    "1x1 and residual": Row(64, 256, 56, follower="residual relu"),
    "downsample": Row(256, 512, 56, stride=2),
    "deep": Row(512, 512, 7, kernel=3, follower="relu"),
    "dilated": Row(64, 64, 28, kernel=3, dilation=2),
    "grouped": Row(64, 64, 28, kernel=3, group=4, follower="relu"),
    "swish": Row(64, 128, 28, follower="swish"),
}


@pytest.fixture
def only_cudnn(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of ours are proposed for what the library has no plan for, and for nothing else."""
    list_all = convolutions._list_ways

    def list_ways(region: Any, kit: Any) -> Any:
        return convolutions._list_library_ways(region, kit) or list_all(region, kit)

    monkeypatch.setattr(convolutions, "_list_ways", list_ways)


def _compile(model: onnx.ModelProto, *, allows_tf32: bool = False) -> Any:
    config = dt.BuilderConfig()
    config.providers = ["cuda", "cpu"]
    if not allows_tf32:
        config.clear_flag(dt.BuilderFlag.TF32)
    return dt.compile(model, config=config)


def _compare(result: Any, right: Any, error: float) -> None:
    wide, expected = result.astype(np.float64), right.astype(np.float64)
    assert np.linalg.norm(wide - expected) <= error * np.linalg.norm(expected)


@pytest.mark.parametrize("kind", list(ERRORS))
@pytest.mark.parametrize("name", list(ROWS))
def test_convolutions_as_networks_have_them(only_cudnn: None, name: str, kind: str) -> None:
    model = make_model(ROWS[name], 2, kind)
    inputs = _make_inputs(model)
    engine = _compile(model)
    assert {step.provider for step in engine.manifest.programs[0].steps} == {"cuda"}
    first = engine(*inputs)
    for _ in range(5):  # the first runs are launched, the others replayed
        assert np.array_equal(engine(*inputs), first)
    _compare(first, dt.compile(model, providers=["cpu"])(*inputs), ERRORS[kind])
    loaded = dt.Runtime().deserialize_cuda_engine(engine.serialize())
    assert np.array_equal(loaded(*inputs), first)


@pytest.mark.parametrize("name", ["3x3", "1x1", "1x1 and residual", "deep"])
def test_there_are_plans_and_none_of_them_is_wrong(cuda: Any, name: str) -> None:
    engine = _compile(make_model(ROWS[name], 8, "float16"))
    rows = [row for table in list_conv_tables(engine) for row in table.candidates if row.name.startswith("cuDNN")]
    assert rows
    assert [(row.name, row.status, row.reason) for row in rows if row.status not in ("timed", "cached")] == []


def test_tf32_is_used_where_it_is_allowed(only_cudnn: None) -> None:
    model = make_model(ROWS["3x3"], 2, "float")
    inputs = _make_inputs(model)
    _compare(_compile(model, allows_tf32=True)(*inputs), dt.compile(model, providers=["cpu"])(*inputs), 2e-3)


def test_another_version_takes_the_first_plan_of_the_heuristic(
    only_cudnn: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(ROWS["3x3"], 2, "float16")
    inputs, engine = _make_inputs(model), _compile(model)
    version = Cudnn.get_version
    monkeypatch.setattr(Cudnn, "get_version", lambda library: version(library) + 1)
    with pytest.warns(RuntimeWarning, match="the first plan of its heuristic is used"):
        loaded = dt.Runtime().deserialize_cuda_engine(engine.serialize())
    _compare(loaded(*inputs), engine(*inputs), 1e-3)


def test_a_plan_is_built_again_from_its_engine_and_knobs(only_cudnn: None, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model(ROWS["3x3"], 2, "float16")
    inputs, engine = _make_inputs(model), _compile(model)
    monkeypatch.setattr(Cudnn, "_restore", lambda library, conv, plan, code: library._rebuild(conv, plan))
    loaded = dt.Runtime().deserialize_cuda_engine(engine.serialize())
    assert np.array_equal(loaded(*inputs), engine(*inputs))


def test_two_contexts_run_one_plan_on_streams_of_their_own(only_cudnn: None) -> None:
    model = make_model(ROWS["1x1 and residual"], 2, "float16")
    inputs, engine = _make_inputs(model), _compile(model)
    plan, expected = engine.serialize(), engine(*inputs)
    others = [dt.Runtime().deserialize_cuda_engine(plan) for _ in range(2)]
    for _ in range(20):
        assert all(np.array_equal(other(*inputs), expected) for other in others)


def test_code_of_another_convolution_is_refused(cuda: Any) -> None:
    """Verify that the front end reports the tensors of a deserialized plan, with which a launch is compared."""
    library = Cudnn(lambda: cuda._gpu.driver)
    search = ConvSearch(count=1, is_thorough=False, workspace_bytes=32 << 20)
    conv = Convolution(
        dtype="float16",
        image=(1, 64, 28, 28),
        image_strides=(50176, 1, 1792, 64),
        filters=64,
        kernel=(3, 3),
        strides=(1, 1),
        dilations=(1, 1),
        before=(1, 1),
        after=(1, 1),
        outputs=(28, 28),
        result_line=64,
        has_bias=True,
        activation="relu",
    )
    (built,) = library.build_plans(conv, search)[:1]
    prepared = library.prepare(conv, built.plan, built.code)
    assert prepared.workspace_bytes == built.workspace_bytes
    larger = msgspec.structs.replace(conv, image=(2, *conv.image[1:]))
    with pytest.raises(PlanCorruptError, match="other tensors than its launch"):
        library.prepare(larger, built.plan, built.code)
