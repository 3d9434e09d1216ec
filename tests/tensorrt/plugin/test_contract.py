"""A plugin made of decorated functions keeps the contract for plugins: the checker judges it like any other."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.plugin.check import check_path

SOURCE = """
import numpy as np
import dovetail_tensorrt.trt.plugin as trtp

@trtp.register("contract::leaky")
def desc(x: trtp.TensorDesc, slope: float, name: str) -> trtp.TensorDesc:
    return x.like()

@trtp.impl("contract::leaky")
def run(x: trtp.Tensor, slope: float, outputs: tuple[trtp.Tensor], stream: int) -> None:
    array = np.asarray(x)
    np.asarray(outputs[0])[...] = np.where(array > 0, array, array * slope)
"""


@pytest.mark.slow
def test_the_checker_finds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "leaky.py"
    path.write_text(SOURCE)
    report = check_path(str(path), fields={"slope": 0.5, "name": "a"})
    assert report.failed_ids == set(), report
