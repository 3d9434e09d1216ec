"""The comparison with ONNX Runtime works and is not far off; the limits themselves need a quiet machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import cpu
from benchmarks.wheels import FetchError

FAR_OFF = 2.0
"""Machines that run tests are shared: only a mistake makes a model run twice as long."""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ocr_classify", "vad"])
def test_a_real_model_is_not_far_off(name: str) -> None:
    model = next(model for model in cpu.ROWS if model.name == name)
    try:
        model.file()
    except FetchError as error:
        pytest.skip(str(error))
    row = cpu.measure_row(model, rounds=3, budget_s=0.2)
    assert row.ratio < FAR_OFF or row.extra_us < 10 * cpu.MAX_EXTRA_US, row
    assert row.verdicts()["memory"], row
    assert row.verdicts()["build memory"], row


def test_an_unknown_model_is_named() -> None:
    command = [sys.executable, str(Path(cpu.__file__)), "no_such_model"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no_such_model" in done.stderr


def test_rows_are_judged_by_their_length() -> None:
    short = cpu.Figures("short", "1", 1.0, 1.0, 100.0, [cpu.Side(1, 0.1, 50)], [cpu.Side(1, 0.114, 59)])
    assert short.verdicts() == {"time": True, "memory": True, "build memory": True}
    long = cpu.Figures("long", "1", 20.0, 1.0, 201.0, [cpu.Side(1, 10, 50)], [cpu.Side(1, 10.6, 51)])
    assert long.verdicts() == {"time": False, "memory": False, "build memory": False}
    assert json.dumps(long.load_ratio) == "1.0"
