"""Help is quick, complete, and the same for every command."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dovetail import __version__
from dovetail.cli import main
from dovetail.cli.catalogue import COMMANDS
from dovetail.cli.parser import find_command, make_parser

ROOT = Path(__file__).resolve().parents[3]
VERBS = {"plan": "check", "provider": "list", "plugin": "list"}
LINES = [[], *([name] for name in COMMANDS), *([name, verb] for name, verb in VERBS.items())]
LIMIT_S = 0.2


def _seconds_of_help(words: list[str]) -> float:
    """What the help costs: the processor time of the process, since the machine may be busy with other tests."""
    before = os.times()
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "dovetail", *words, "-h"], check=True, capture_output=True)
    wall_s, after = time.perf_counter() - start, os.times()
    used_s = after.children_user + after.children_system - before.children_user - before.children_system
    return min(wall_s, used_s or wall_s)  # some systems do not count children


@pytest.mark.parametrize("words", LINES, ids=" ".join)
def test_help_is_quick(words: list[str]) -> None:
    assert any(_seconds_of_help(words) < LIMIT_S for _ in range(3))


@pytest.mark.parametrize("words", LINES, ids=" ".join)
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    code = (
        "import argparse, sys; argparse.ArgumentParser().format_help(); "
        "standard = set(sys.modules); "  # what Python's own parser imports is its business, and grew in 3.14
        "from dovetail.cli import main; code = main(sys.argv[1:]); "
        "heavy = {'numpy', 'rich', 'onnx', 'onnx_ir', 'msgspec', 'asyncio'}; "
        "heavy |= {'importlib.metadata', 'dataclasses'} if len(sys.argv) > 2 else set(); "  # packages are only listed
        "print('HEAVY', sorted(heavy & sys.modules.keys() - standard)); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, *words, "-h"], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "HEAVY []"


@pytest.mark.parametrize("words", LINES, ids=" ".join)
def test_help_says_what_the_command_does(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "-h"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: {' '.join(['dovetail', *words])}")
    if words and (len(words) == 2 or words[0] not in VERBS):
        assert "--json" in shown


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"dovetail {__version__}\n"


@pytest.mark.parametrize(
    ("words", "command"),
    [(["run", "x"], "run"), (["-h", "run"], "run"), (["--version"], None), ([], None), (["x", "run"], "x")],
)
def test_find_command(words: list[str], command: str | None) -> None:
    assert find_command(words) == command


def test_every_option_is_documented() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    parser = make_parser()
    commands = next(action for action in parser._actions if hasattr(action, "choices") and action.choices)
    assert isinstance(commands.choices, dict)
    for name, command in commands.choices.items():
        assert f"dovetail {name}" in page
        options = {option for action in command._actions for option in action.option_strings if option.startswith("--")}
        missing = {option for option in options - {"--help"} if f"`{option}" not in page}
        assert not missing, name
