"""The device of paper inside ONNX Runtime: what it rewrites with channels last is taken again, and runs there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail
from dovetail_cuda.lower.images import NHWC_DOMAIN
from tests.cuda.channels_last import HEAD, MODELS
from tests.cuda.inputs import make_inputs

ort = pytest.importorskip("onnxruntime", reason="ONNX Runtime, in which the device is, is not here")


@pytest.fixture
def device(paper: Any) -> Iterator[Any]:
    """The device as ONNX Runtime lists it."""
    from tests.support import ort_ep
    from tests.support.ort_devices import DeviceInOrt

    name = ort_ep.register("dovetail-paper")
    (listed,) = ort_ep.devices("cuda")
    yield DeviceInOrt(paper[0], listed)
    ort.unregister_execution_provider_library(name)


@pytest.mark.parametrize("name", ["BatchNormalization", "AveragePool", "blocks", "GridSample", "LRN"])
def test_what_onnxruntime_rewrites_runs_here(device: Any, paper: Any, name: str) -> None:
    ops, text = MODELS[name]
    model = onnx.parser.parse_model(HEAD + text)
    inputs = make_inputs(model)
    session = device.session(model, prefer_nhwc="1")
    (part,) = session.get_provider_graph_assignment_info()
    rewritten = [node.op_type for node in part.get_nodes() if node.domain == NHWC_DOMAIN]
    assert sorted(rewritten) == sorted(ops.split())
    before = len(paper[1].launched)
    (result,) = session.run(None, dict(zip([value.name for value in model.graph.input], inputs, strict=True)))
    assert len(paper[1].launched) > before
    expected = dovetail.compile(model, providers=["cpu"])(*inputs)
    np.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-5)
