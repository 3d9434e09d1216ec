"""The tutorial that starts with PyTorch: everything it tells the reader to write and to run is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.teaching import run_pages


@pytest.mark.slow
def test_blocks_run_in_order(tmp_path: Path) -> None:
    run_pages([Path(__file__).parents[2] / "docs/tutorials/from-torch.md"], tmp_path)
