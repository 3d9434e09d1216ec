"""What is closed says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import parser

import dovetail as dt

MODEL = '<ir_version: 10, opset_import: ["" : 21]> m (float[4] x) => (float[4] y) { y = Relu(x) }'


def test_a_closed_engine_saves_nothing(tmp_path: Path) -> None:
    engine = dt.compile(parser.parse_model(MODEL))
    engine.close()
    for attempt in (engine.serialize, lambda: engine.save(tmp_path / "m.plan"), engine.create_execution_context):
        with pytest.raises(dt.UsageError, match="the engine is closed"):
            attempt()
    assert not (tmp_path / "m.plan").exists()


def test_a_closed_context_takes_nothing() -> None:
    with dt.compile(parser.parse_model(MODEL)) as engine:
        context = engine.create_execution_context()
        x = np.zeros(4, np.float32)
        context.set_tensor_address("x", x.ctypes.data)
        context.close()
        for attempt in (
            lambda: context.set_tensor_address("x", x.ctypes.data),
            lambda: context.set_input_shape("x", (4,)),
            lambda: context.set_output_allocator("y", None),
            lambda: context.use_streams({}),
        ):
            with pytest.raises(dt.UsageError, match="the context is closed"):
                attempt()
