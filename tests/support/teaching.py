"""Runs pages that teach in a process of their own, as their readers would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TEACHING = [
    *(DOCS / name for name in ("quickstart.md", "coming-from-onnxruntime.md", "json.md")),
    *sorted(DOCS.glob("tutorials/*.md")),
    *sorted(DOCS.glob("how-to/*.md")),
]
"""Pages whose blocks, commands and files are run in order, in one folder."""


def run_pages(pages: list[Path], folder: Path) -> None:
    """Run every block of the pages under the folder; one that fails fails the test, with what it printed."""
    settings = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100", "NO_COLOR": "1", "PYTHONWARNINGS": "error"}
    words = [sys.executable, "-m", "tests.support.page_runner", *map(str, pages)]
    done = subprocess.run(words, cwd=folder, env=settings, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
