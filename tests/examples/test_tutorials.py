"""Tutorials and how-tos: everything that they tell the reader to write and to run is run, in order, in one folder."""

from __future__ import annotations

from pathlib import Path

from tests.support.teaching import TEACHING, run_pages

NEED_TORCH = {"from-torch.md"}
"""Run by tests/torch, where PyTorch is installed."""
PAGES = [page for page in TEACHING if page.name not in {"README.md", *NEED_TORCH}]


def test_there_are_pages() -> None:
    assert {"quickstart.md", "first-layer.md", "debug.md", "deploy.md"} <= {page.name for page in PAGES}


def test_blocks_run_in_order(tmp_path: Path) -> None:
    run_pages(PAGES, tmp_path)
