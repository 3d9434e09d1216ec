"""The pages that teach by code: their blocks run in order, as one program, and so do their commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.distributions import install

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted((ROOT / "docs").glob("add-a-*.md")),
    ROOT / "docs" / "caches.md",
    ROOT / "docs" / "precision.md",
    ROOT / "docs" / "inside-onnxruntime.md",
    ROOT / "docs" / "python.md",
    ROOT / "packages" / "onnxruntime-ep-dovetail" / "README.md",
]
LONGEST_PAGE = 240


def _blocks(page: Path, language: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def _run(words: list[str], folder: Path, **variables: str) -> str:
    settings = os.environ | {"PYTHONWARNINGS": "error", "PYTHONIOENCODING": "utf-8"} | variables
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, cwd=folder, env=settings)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_there_are_pages() -> None:
    expected = {f"add-a-{name}.md" for name in ("kernel", "pass", "provider", "compiling-provider", "device-provider")}
    assert expected <= {page.name for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_blocks_run_in_order(page: Path, tmp_path: Path) -> None:
    blocks = _blocks(page, "python")
    assert any("assert" in block for block in blocks), "the page claims nothing that can fail"
    (tmp_path / "page.py").write_text("\n".join(blocks), encoding="utf-8")
    _run([sys.executable, "page.py"], tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_run(page: Path, tmp_path: Path) -> None:
    for line in "".join(_blocks(page, "sh")).splitlines():
        if line.startswith("pip install ./packages/"):
            continue  # the environment of the tests has them in place
        assert line.startswith("dovetail "), line
        _run([sys.executable, "-m", *line.split()], tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_is_short(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").splitlines()) <= LONGEST_PAGE


def test_provider_of_the_page_is_found_as_a_package(tmp_path: Path) -> None:
    page = ROOT / "docs" / "add-a-provider.md"
    (metadata,) = _blocks(page, "toml")
    entry_points = tomllib.loads(metadata)["project"]["entry-points"]
    (module,) = {target.partition(":")[0] for target in entry_points["dovetail.providers"].values()}
    uses = ("register_provider", "compile(model", "check_provider")
    source = "\n".join(block for block in _blocks(page, "python") if not any(use in block for use in uses))
    install(tmp_path, "acme-provider", entry_points, {module: source})
    shown = _run([sys.executable, "-m", "dovetail", "provider", "list"], tmp_path, PYTHONPATH=str(tmp_path))
    assert re.search(r"acme +acme-provider 1\.2 .*not imported", shown)
    shown = _run([sys.executable, "-m", "dovetail", "provider", "list", "--load"], tmp_path, PYTHONPATH=str(tmp_path))
    assert "cpu 0: Acme host" in shown
