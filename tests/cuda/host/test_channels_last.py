"""Channels last, on request: operators become those of com.ms.internal.nhwc, and these run on the device of paper."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import dovetail
from dovetail.provider.loader import get_provider
from dovetail_cuda.graph.planner import plan_partition
from dovetail_cuda.graph.regions import ConvRegion, ElementRegion
from dovetail_cuda.lower.expr import ROW
from dovetail_cuda.lower.images import NHWC_DOMAIN
from dovetail_cuda.lower.index import Index
from dovetail_cuda.lower.operators.channels_last import ALLOWED
from dovetail_cuda.lower.registry import load_registry
from tests.cuda.channels_last import HEAD, MODELS, build, check_ran, list_rewritten
from tests.cuda.inputs import make_inputs

LAST = f'<ir_version: 10, opset_import: ["" : 21, "{NHWC_DOMAIN}" : 21]> g '


@pytest.fixture(autouse=True)
def _few_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes its time: one way to try."""
    monkeypatch.setattr("dovetail_cuda.tune.conv_tiles._MOST_TILES", 1)
    monkeypatch.setattr("dovetail_cuda.tune.conv_tiles._MOST_EARLY", 0)


@pytest.mark.parametrize("name", MODELS)
def test_what_is_rewritten_runs_here_and_gives_what_cpu_gives(paper: Any, name: str) -> None:
    ops, text = MODELS[name]
    model = onnx.parser.parse_model(HEAD + text)
    inputs = make_inputs(model)
    engine = build(model)
    check_ran(engine, inputs, ops.split())
    expected = dovetail.compile(model, providers=["cpu"])(*inputs)
    for _ in range(2):
        np.testing.assert_allclose(engine(*inputs), expected, rtol=2e-5, atol=2e-5)


def test_the_models_have_every_operator_of_the_list() -> None:
    assert {op for ops, _ in MODELS.values() for op in ops.split()} == set(ALLOWED)
    assert {kernel.op for kernel in load_registry() if kernel.domain == NHWC_DOMAIN} == set(ALLOWED)


@pytest.mark.parametrize(("option", "layout"), [({}, "NCHW"), ({"prefer_nhwc_layout": "1"}, "NHWC")])
def test_an_option_asks_for_the_layout(paper: Any, option: dict[str, str], layout: str) -> None:
    assert get_provider("cuda", option).preferred_layout == layout


def test_nothing_is_rewritten_unless_asked_for(paper: Any) -> None:
    model = onnx.parser.parse_model(HEAD + MODELS["AveragePool"][1])
    (step,) = dovetail.compile(model, providers=["cuda"]).manifest.programs[0].steps
    assert [node.op for node in step.partition.report.nodes] == ["AveragePool"]


def test_what_has_no_channels_last_stays_as_it_is(paper: Any) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 22]> g '
        "(bfloat16[1,3,4,4] x) => (bfloat16[1,3,1,1] y) { y = GlobalMaxPool(x) }"
    )
    with pytest.raises(AssertionError, match="left as they were: \\['GlobalMaxPool'\\]"):
        list_rewritten(build(model))


def test_a_convolution_reads_and_writes_images_where_they_lie() -> None:
    """With channels last on both sides there is one kernel, and nothing is moved before or after it."""
    text = f"""(float[2,9,7,8] x, float[16,8,3,3] w) => (float[2,9,7,16] y) {{
        c = {NHWC_DOMAIN}.Conv<pads=[1,1,1,1]>(x, w) y = Relu(c) }}"""
    model = ir.from_proto(onnx.parser.parse_model(LAST + text))
    filters, region = plan_partition(model).regions
    assert filters.ops == ("Expand",), "only the filters, which are no weight here, are packed"
    assert isinstance(region, ConvRegion)
    assert (region.image.buffer, region.image.strides) == ("x", (504, 1, 56, 8))
    assert region.stored.buffer == "y"


def test_values_between_lie_as_their_shapes_say() -> None:
    text = f"""(float[2,9,7,16] x, float[16,16,3,3] w) => (float[2,5,3,16] y) {{
        c = {NHWC_DOMAIN}.Conv(x, w) d = {NHWC_DOMAIN}.Conv<pads=[1,1,1,1]>(c, w)
        y = {NHWC_DOMAIN}.MaxPool<kernel_shape=[3,3]>(d) }}"""
    plan = plan_partition(ir.from_proto(onnx.parser.parse_model(LAST + text)))
    second = [region for region in plan.regions if isinstance(region, ConvRegion)][1]
    assert second.image.strides == (560, 1, 80, 16)
    assert [region.ops for region in plan.regions if region.ops != ("Expand",)] == [
        *((f"{NHWC_DOMAIN}::{op}",) for op in ("Conv", "Conv", "MaxPool")),
    ]


def test_neighbours_write_side_by_side() -> None:
    text = f"""(float[2,8,9,4] x) => (float[2,5,3,4] y) {{
        y = {NHWC_DOMAIN}.MaxPool<kernel_shape=[4,4], strides=[1,2]>(x) }}"""
    (region,) = plan_partition(ir.from_proto(onnx.parser.parse_model(LAST + text))).regions
    assert isinstance(region, ElementRegion)
    assert region.stored[0].place == Index.variable(ROW, 2 * 5 * 3 * 4)


def test_plans_of_cudnn_are_for_these_convolutions_too(paper: Any) -> None:
    provider, driver = paper
    provider._toolbox.has_cudnn = True
    ops, text = MODELS["residual"]
    model = onnx.parser.parse_model(HEAD + text)
    inputs = make_inputs(model)
    engine = build(model)
    check_ran(engine, inputs, ops.split())
    assert "convolution" in driver.launched
    np.testing.assert_allclose(
        engine(*inputs), dovetail.compile(model, providers=["cpu"])(*inputs), rtol=2e-4, atol=2e-4
    )
