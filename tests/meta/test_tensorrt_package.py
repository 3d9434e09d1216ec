"""The tensorrt-shaped module is written over the public names of Dovetail alone."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import dovetail

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "packages/dovetail-tensorrt/src/dovetail_tensorrt"
SOURCES = sorted([*PACKAGE.glob("*.py"), *(PACKAGE / "trt").rglob("*.py"), *(PACKAGE / "cudart").rglob("*.py")])
SOURCES = [path for path in SOURCES if PACKAGE / "trt/plugin" not in path.parents]
CHECKED_OPENER = "dovetail.files"
"""The only module besides the public names: every package opens files with the same checks."""
OUTSIDE = {"dovetail", "dovetail_tensorrt", "ml_dtypes", "numpy", "onnx", "onnx_ir", "polygraphy"}


def _trees() -> Iterator[tuple[str, ast.Module]]:
    for path in SOURCES:
        yield str(path.relative_to(PACKAGE)), ast.parse(path.read_text(encoding="utf-8"))


def test_it_imports_dovetail_and_few_others() -> None:
    found = []
    for name, tree in _trees():
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or "."] if isinstance(node, ast.ImportFrom) else []
            roots = {each.partition(".")[0] for each in names} - OUTSIDE - sys.stdlib_module_names
            inner = {each for each in names if each.startswith("dovetail.") and each != CHECKED_OPENER}
            found += [f"{name}: {each}" for each in sorted(roots | inner)]
    assert SOURCES
    assert found == []


def test_it_uses_public_names_of_dovetail() -> None:
    public = set(dovetail.__all__)
    found = []
    for name, tree in _trees():
        for node in ast.walk(tree):
            used = []
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "dovetail":
                used = [node.attr]
            elif isinstance(node, ast.ImportFrom) and node.module == "dovetail":
                used = [alias.name for alias in node.names]
            found += [f"{name}: dovetail.{each}" for each in used if each not in public]
    assert found == []


def test_its_lock_has_pins_and_hashes_and_no_address() -> None:
    text = (ROOT / "requirements/tensorrt.txt").read_text(encoding="utf-8")
    assert "://" not in text
    entries = [entry for entry in text.split("\n") if entry and not entry.startswith((" ", "#"))]
    assert "polygraphy" in [entry.partition("==")[0] for entry in entries]
    assert text.count("--hash=sha256:") >= len(entries)
