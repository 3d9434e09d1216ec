"""Where ONNX Runtime takes a session's settings from its model, sessions work all the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail as dt
import onnxruntime_ep_dovetail
from tests.support.ort_ep import EP, needs_names, session_options
from tests.support.ort_models import make_model, node, tensor

pytestmark = pytest.mark.versions

Open = Callable[..., Any]
X = np.float32([-1, 2])


@dt.layer("ConfigTwice")
def _twice(x: Any) -> Any:
    return x + x


def _model() -> onnx.ModelProto:
    steps = [node("Neg", ["x"], ["a"]), node("ConfigTwice", ["a"], ["y"], domain="trt.plugins")]
    model = make_model(steps, [tensor("x", [2])], [tensor("y", [2])], domains=["trt.plugins"])
    model.metadata_props.add(key="ort_config", value='{"session_options": {"intra_op_num_threads": 1}}')
    return model


@pytest.fixture(autouse=True)
def _settings_of_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")


@pytest.mark.parametrize("source", ["file", "memory"])
def test_a_device_loses_its_options_and_the_log_says_so(
    dovetail_session: Open, source: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model: Any = _model()
    if source == "file":
        onnx.save(model, tmp_path / "m.onnx")
        model = tmp_path / "m.onnx"
    session = dovetail_session(model, claim="all", fallback=True)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], -2 * X)
    assert session.get_providers()[0] == EP
    assert "ORT_LOAD_CONFIG_FROM_MODEL=1 ONNX Runtime passes no options" in capfd.readouterr().err


@needs_names
def test_a_named_execution_provider_keeps_them(dovetail_session: Open, capfd: pytest.CaptureFixture[str]) -> None:
    options = session_options(fallback=True)
    options.register_custom_ops_library(onnxruntime_ep_dovetail.get_library_path())
    session = dovetail_session(_model(), options=options, by_name=True, claim="all")
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], -2 * X)
    with pytest.raises(Exception, match="not a choice"):
        dovetail_session(_model(), options=options, by_name=True, claim="most")
    assert "passes no options" not in capfd.readouterr().err
