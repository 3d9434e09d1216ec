"""The list of GPU tests in docs/gpu-pending.md: complete, and every row names a test that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/gpu-pending.md").read_text(encoding="utf-8")
POINTS, SUITE = PAGE.split("## The whole suite")
TEST_ID = re.compile(r"(tests/[\w/]+\.py)(?:::(\w+))?")


def _find_gpu_files() -> set[str]:
    """Return the test files that need a device: those of folders named ``gpu``, and files named ``test_gpu.py``."""
    paths = {*ROOT.glob("tests/**/gpu/test_*.py"), *ROOT.glob("tests/**/test_gpu.py")}
    return {path.relative_to(ROOT).as_posix() for path in paths}


def test_suite_lists_every_file_that_needs_a_device() -> None:
    listed = set(re.findall(r"^\| `(tests/\S+\.py)` \|", SUITE, re.M))
    assert listed == _find_gpu_files()


def test_make_target_runs_every_file_that_needs_a_device() -> None:
    recipe = re.search(r"^test-gpu:.*\n\t(.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert recipe is not None
    arguments = [word for word in recipe[1].split() if word.startswith("tests/")]
    missing = [name for name in _find_gpu_files() if not name.startswith(tuple(arguments))]
    assert missing == []


def test_rows_name_existing_tests() -> None:
    rows = [line for line in POINTS.splitlines() if line.startswith("| ") and not line.startswith("| point ")]
    for row in rows:
        names = TEST_ID.findall(row)
        assert names, f"no test in: {row}"
        for file, function in names:
            assert file in _find_gpu_files(), f"{file} does not need a device, or does not exist: {row}"
            tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
            functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
            assert not function or function in functions, f"no test {function} in {file}"
