"""Types chosen by a build, on a GPU: a network for images and a block of a transformer, against fp32 on the host."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.errors import BuildError
from tests.cuda.precision_cases import ERRORS, PAIRS, check_precision


@pytest.mark.parametrize(("model", "kind"), PAIRS)
def test_a_type_is_near_fp32_and_runs_on_the_device(cuda: Any, model: str, kind: str, capsys: Any) -> None:
    try:
        error, _ = check_precision(model, kind)
    except BuildError as refusal:
        if kind != "fp8":
            raise
        pytest.skip(f"the device has no fp8: {refusal.what}")
    with capsys.disabled():
        print(f"\n{model} in {kind}: error {error:.1e}")
    assert 0 < error < ERRORS[kind]
