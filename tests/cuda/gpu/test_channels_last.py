"""Channels last on a GPU: operators that were rewritten to com.ms.internal.nhwc are what runs there."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import dovetail
from tests.cuda.channels_last import HEAD, MODELS, build, check_ran
from tests.cuda.inputs import make_inputs

ERROR = 2e-5
"""The largest difference from the reference, in norms."""


@pytest.mark.parametrize("name", MODELS)
def test_what_is_rewritten_runs_here_and_gives_what_cpu_gives(cuda: Any, name: str) -> None:
    ops, text = MODELS[name]
    model = onnx.parser.parse_model(HEAD + text)
    inputs = make_inputs(model)
    engine = build(model)
    check_ran(engine, inputs, ops.split())
    exact = dovetail.compile(model, providers=["cpu"])(*inputs).astype(np.float64)
    for _ in range(3):
        assert np.linalg.norm(engine(*inputs).astype(np.float64) - exact) <= ERROR * np.linalg.norm(exact)
