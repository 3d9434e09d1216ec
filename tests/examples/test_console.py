"""Pages with commands and what they print: the blocks run in order, in one folder, and print exactly that."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest

from dovetail.cli import main
from tests.support.teaching import TEACHING

ROOT = Path(__file__).parents[2]
PAGES = [
    page
    for page in sorted((ROOT / "docs").glob("*.md"))
    if page not in TEACHING and "```console" in page.read_text(encoding="utf-8")
]
_BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


def test_there_are_pages() -> None:
    assert {"inputs.md"} <= {page.name for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_print_what_the_page_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    for language, text in _BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            (tmp_path / "block.py").write_text(text, encoding="utf-8")
            runpy.run_path("block.py")
            continue
        for command, expected in re.findall(r"^\$ dovetail (.*)\n((?:(?!\$ ).*\n)*)", text, flags=re.MULTILINE):
            capsys.readouterr()
            main(shlex.split(command))
            shown = capsys.readouterr()
            assert shown.out + shown.err == expected, command
