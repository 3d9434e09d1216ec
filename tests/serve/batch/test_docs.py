"""docs/batch.md: its blocks run in order, in one folder, and print what the page shows."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest

from dovetail.cli import main

PAGE = Path(__file__).parents[3] / "docs" / "batch.md"
BLOCK = re.compile(r"^```(python|sh|text)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


def test_the_page_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = ""
    for language, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if language == "python":
            (tmp_path / "block.py").write_text(text, encoding="utf-8")
            runpy.run_path("block.py")
        elif language == "sh" and text.startswith("dovetail "):
            capsys.readouterr()
            main(shlex.split(text)[1:])
            shown = capsys.readouterr().out
        elif language == "text":
            assert text in (shown, (tmp_path / "out" / "errors.jsonl").read_text())
