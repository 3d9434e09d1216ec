"""Real models and networks: the same results as ONNX Runtime's, and how much of them OpenVINO has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import dovetail
from benchmarks.cpu import ROWS, Model
from benchmarks.openvino_provider import ATOL, PROVIDERS, RTOL
from benchmarks.wheels import FetchError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
IN_ONE = {"resnet50", "mobilenet_v3", "bert_base", "vit_b16", "ocr_detect", "ocr_recognise", "ocr_classify"}
IN_ONE |= {"vad_16k_sequence", "vad_op18_ifless", "vad_openvino_16k"}
"""Models that are one partition. Magika has a ReduceMax, and the others have branches of unknown rank."""


@pytest.mark.parametrize("model", ROWS, ids=lambda model: model.name)
def test_results_are_those_of_onnxruntime(model: Model, tmp_path: Path) -> None:
    try:
        path = str(model.file())
    except FetchError as error:
        pytest.skip(f"{model.name}: {error}")
    feeds = {name: one.make() for name, one in model.inputs.items()}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    expected = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, feeds)
    dovetail.compile(path, providers=PROVIDERS).save(tmp_path / "m.plan")
    engine = dovetail.load(tmp_path / "m.plan")
    for _ in range(2):
        results = engine(**feeds)
        found = list(results.values()) if isinstance(results, dict) else [results]
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=RTOL, atol=ATOL)
    steps = engine.manifest.programs[0].steps
    assert ([step.provider for step in steps] == ["openvino"]) == (model.name in IN_ONE)
