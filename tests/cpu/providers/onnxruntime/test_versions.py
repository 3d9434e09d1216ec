"""Plans that another version of ONNX Runtime optimised: they run with a note, or the error says which versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import parser

import dovetail as dt
from dovetail.errors import DovetailError, PlanCorruptError, ProviderError
from dovetail.provider.host import host_device
from dovetail.provider.interfaces import StoredPartition
from dovetail.provider.loader import get_provider
from dovetail.providers.onnxruntime.provider import OnnxRuntimeProvider
from tests.support.typed import Log

onnxruntime = pytest.importorskip("onnxruntime", reason="the provider needs it")

X = np.linspace(-2, 2, 8, dtype=np.float32)


def _model(opset: int) -> Any:
    text = f'<ir_version: 10, opset_import: ["" : {opset}]> g (float[8] x) => (float[8] y) {{ y = Relu(x) }}'
    return parser.parse_model(text)


@pytest.mark.parametrize("is_file", [True, False])
def test_a_plan_of_another_version_runs_with_a_note(
    is_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(get_provider("onnxruntime"), "version", "1.99.0")
        built = dt.compile(_model(21))
    path = tmp_path / "other.plan"
    built.save(path)
    log = Log()
    runtime = dt.Runtime(log)
    engine = runtime.load_engine(path) if is_file else runtime.deserialize_cuda_engine(path.read_bytes())
    np.testing.assert_array_equal(engine(X), np.maximum(X, 0))
    assert f"optimised by ONNX Runtime '1.99.0', and again by {onnxruntime.__version__} now" in log


def _load(version: str, opset: int, payload: bytes | None = None) -> Any:
    stored = StoredPartition(
        name="relu",
        payload=memoryview(_model(opset).SerializeToString() if payload is None else payload),
        version=version,
        inputs=["x"],
        outputs=["y"],
        weights={},
        places={},
    )
    return OnnxRuntimeProvider(host_device()).load_partition(stored)


@pytest.mark.parametrize(
    ("version", "error", "fix"),
    [
        ("1.99.0", ProviderError, f"again with ONNX Runtime {onnxruntime.__version__}, or run it with '1.99.0'"),
        (onnxruntime.__version__, PlanCorruptError, "build the plan again"),
        ("", ProviderError, ""),
    ],
)
def test_a_partition_that_this_version_cannot_read(version: str, error: type[DovetailError], fix: str) -> None:
    """Newer versions write opsets that older ones refuse."""
    with pytest.raises(error, match="does not take a partition") as caught:
        _load(version, 1000)
    assert fix in str(caught.value)


def test_a_damaged_partition_is_that_whatever_its_version() -> None:
    with pytest.raises(PlanCorruptError):
        _load("1.99.0", 21, b"\x3a\x03abc")
