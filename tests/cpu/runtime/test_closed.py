"""What is closed says so."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from onnx import parser

import dovetail as dt
from dovetail.provider.interfaces import Device
from dovetail.provider.loader import register_provider, unregister_provider
from tests.support.paper_provider import PaperFactory, PaperPartition, PaperProvider

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


class _Counted(PaperPartition):
    closed: ClassVar[list[str]] = []

    def close(self) -> None:
        self.closed.append(self.outputs[0])


class _Counting(PaperProvider):
    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self.partition = _Counted


def test_the_partitions_of_an_engine_end_with_it() -> None:
    register_provider(PaperFactory(_Counting))
    try:
        engine = dt.compile(parser.parse_model(MODEL), providers=["paper", "cpu"])
        engine(np.zeros(4, np.float32))
        assert _Counted.closed == []
        engine.close()
        engine.close()
        assert _Counted.closed == ["y"]
    finally:
        unregister_provider("paper")
