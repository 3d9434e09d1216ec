"""Every example runs as a user would run it, keeps the contract it teaches, and so does the README."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dovetail.plugin.check import check_path

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
README = (ROOT / "README.md").read_text(encoding="utf-8")
ONE_SCREEN = 110
"""Lines that are not empty."""
CHECKED: dict[str, dict[str, Any]] = {
    "01_pad.py": {"fields": {"size": 32}, "shapes": ["2x3x8x8"]},
    "02_data_dependent.py": {"shapes": ["2x3x8x8"], "shape_inputs": [(3,)]},
    "03_shared_weights.py": {"shapes": ["8x64"]},
    "04_two_tactics.py": {"shapes": ["16x8,4x8"]},
    "05_library_in_plan.py": {"fields": {"softness": 0.5}},
    "06_kv_cache.py": {"shapes": ["4x16,4x16,4x16,5x4x16,5x4x16"]},
    "07_quick_layer.py": {"fields": {"window": 5}, "shapes": ["4x256"]},
    "09_composition.py": {},
    "plugins/spectral_gate.py": {"fields": {"strength": 1.5}, "shapes": ["2x3x8x8"]},
    "plugins/device_scale.py:CupyScale": {"fields": {"factor": 3.0}, "shapes": ["2x3"]},
    "plugins/device_scale.py:TritonScale": {"fields": {"factor": 3.0}, "shapes": ["2x3"]},
}
"""Examples that hold a plugin, and what the checker must be told to make it."""


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run in a folder of its own, with warnings as errors; the output of one that fails is the message."""
    settings = os.environ | {"PYTHONWARNINGS": "error", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=folder, env=settings)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done


def test_there_are_examples() -> None:
    names = {path.name for path in EXAMPLES}
    assert {"demo.py", "01_pad.py", "06_kv_cache.py"} <= names
    assert all((ROOT / "examples" / name.partition(":")[0]).is_file() for name in CHECKED)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_runs(path: Path, tmp_path: Path) -> None:
    done = _run([sys.executable, str(path)], tmp_path)
    assert done.stdout.strip()
    assert "\x1b" not in done.stdout, "colours are for terminals"
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == [], "an example leaves nothing behind"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_has_the_form_of_one(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert re.match(r'# /// script\n(# .*\n)*# dependencies = \["dovetail-engine\[all\]"\]\n# ///\n', text)
    assert len(ast.get_docstring(tree) or "") > 80, "it says what it shows"
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    source = ast.unparse(functions["main"])
    assert "assert" in source, "it ends in an assertion"
    if path.name != "demo.py":
        assert sum(bool(line.strip()) for line in text.splitlines()) <= ONE_SCREEN


@pytest.mark.parametrize("name", CHECKED)
def test_plugin_of_the_example_keeps_every_rule(name: str) -> None:
    report = check_path(str(ROOT / "examples" / name), **CHECKED[name])
    assert report.ok, str(report)


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def test_readme_code_runs_and_its_layer_passes_the_checker(tmp_path: Path) -> None:
    layer, use = _blocks("python")
    (tmp_path / "moving_average.py").write_text(layer, encoding="utf-8")
    (tmp_path / "readme.py").write_text(layer + use, encoding="utf-8")
    _run([sys.executable, "readme.py"], tmp_path)
    assert (tmp_path / "model.plan").is_file()
    commands = [line for block in _blocks("sh") for line in block.splitlines() if line.startswith("dovetail ")]
    assert [command.split()[:2] for command in commands] == [["dovetail", "check"]]
    done = _run([sys.executable, "-m", *commands[0].split()], tmp_path)
    assert re.search(r"\d\d passed, 0 failed", done.stdout)


def test_readme_layer_is_as_short_as_promised() -> None:
    lines = [line for line in _blocks("python")[0].splitlines() if line.strip() and not line.startswith("import")]
    assert len(lines) <= 15


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_demo_draws_bars_and_colours_on_a_terminal(tmp_path: Path) -> None:
    import pty

    command = [sys.executable, str(ROOT / "examples" / "demo.py")]
    ours, theirs = pty.openpty()
    settings = os.environ | {"TERM": "xterm-256color", "COLUMNS": "100"}
    settings.pop("NO_COLOR", None)
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.STDOUT, cwd=tmp_path, env=settings) as process:
        os.close(theirs)
        shown = _read_all(ours)
    assert process.returncode == 0, shown
    assert "\x1b[?25l" in shown, "the cursor is hidden while bars move"
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l"), "and is back afterwards"
    assert re.search(r"\x1b\[32m.*chosen", shown), "what was chosen stands out"


def _read_all(descriptor: int) -> str:
    parts = []
    while True:
        try:
            part = os.read(descriptor, 65536)
        except OSError:  # how Linux says that the other end of a pseudo-terminal is closed
            break
        if not part:
            break
        parts.append(part)
    os.close(descriptor)
    return b"".join(parts).decode("utf-8", errors="replace")
