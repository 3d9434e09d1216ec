"""The house: folders that can be taken in at a glance, and one name for each class."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = sorted(ROOT.glob("packages/*/src/*"))
LARGEST_FOLDER = 20
CATALOGUES = {"layers": "one module a family of layers", "onnx": "one module a family of operators"}
"""Folders that are lists by nature, and of what."""


def test_folders_can_be_taken_in_at_a_glance() -> None:
    folders = {path.parent for source in SOURCES for path in source.rglob("*.py")}
    counts = {folder: len(list(folder.glob("*.py"))) for folder in folders if folder.name not in CATALOGUES}
    top = {folder for folder in counts if folder.parent.name == "src"}
    assert {str(f.relative_to(ROOT)): n for f, n in counts.items() if n > LARGEST_FOLDER and f not in top} == {}


def test_no_two_classes_have_one_name() -> None:
    for source in SOURCES:
        found: dict[str, list[str]] = defaultdict(list)
        for path in source.rglob("*.py"):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef):
                    found[node.name.lstrip("_")].append(str(path.relative_to(source)))
        assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def test_the_walk_of_a_model_names_modules_that_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    walk = text.split("## The walk of one model")[1].split("## Where a change goes")[0]
    package = ROOT / "packages" / "dovetail" / "src" / "dovetail"
    for row in [line for line in walk.splitlines() if line.startswith("| ")][1:]:
        folder = package
        for name in re.findall(r"`([\w./]+)`", row.rsplit("|", 2)[1]):
            if name.endswith("/"):
                folder = package / name
                assert folder.is_dir(), name
            else:
                assert any((base / f"{name}.py").exists() for base in (folder, package)), name
