"""The notebooks of the documentation run from an empty kernel, and give what they show."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks() -> None:
    assert {path.stem for path in NOTEBOOKS} >= {"compare-and-debug", "custom-layer", "from-torch"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_gives_what_it_shows(path: Path) -> None:
    tool = ROOT / "tools" / "notebooks"
    done = subprocess.run([sys.executable, tool, "--check", path], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, f"run `make notebooks`\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_cell_shows_an_error_or_a_warning(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    assert outputs
    assert [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"] == []
