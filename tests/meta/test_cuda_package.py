"""The CUDA provider is a guest: the public contract alone, one module that calls the driver, and a run time apart."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "packages/dovetail-cuda/src/dovetail_cuda"
SOURCES = sorted(PACKAGE.rglob("*.py"))
ALLOWED = (
    *("dovetail.provider.interfaces", "dovetail.provider.memory", "dovetail.errors", "dovetail.allocators"),
    *("dovetail.expr", "dovetail.loggers", "dovetail.provider.costs"),
    "dovetail.files",  # the checked opener: one implementation for every package
    "dovetail_cuda",
)
BUILD_FOLDERS = ("graph", "lower", "kernels", "compile", "tune", "emit", "capability")


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "."
            yield from (f"{node.module}.{alias.name}" for alias in node.names if node.module == "dovetail_cuda")


def test_it_imports_the_public_contract_alone() -> None:
    assert SOURCES
    names = {name for path in SOURCES for name in _imports(path) if name.partition(".")[0].startswith("dovetail")}
    assert "dovetail.provider.interfaces" in names
    assert [name for name in sorted(names) if not name.startswith(ALLOWED)] == []


def test_one_module_calls_the_driver() -> None:
    callers = [path.name for path in SOURCES for name in _imports(path) if name.partition(".")[0] == "cuda"]
    assert set(callers) == {"driver.py"}


def test_one_module_imports_the_front_end_of_cudnn_and_only_when_it_is_needed() -> None:
    importers = [path for path in SOURCES for name in _imports(path) if name.partition(".")[0] == "cudnn"]
    assert [path.relative_to(PACKAGE).as_posix() for path in importers] == ["run/cudnn.py"]
    tree = ast.parse(importers[0].read_text(encoding="utf-8"))
    assert "cudnn" not in [alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names]


def test_running_imports_nothing_that_builds() -> None:
    rooms = {"run": (*BUILD_FOLDERS, "choose"), "choose": BUILD_FOLDERS}
    for path, folders in [(path, folders) for room, folders in rooms.items() for path in (PACKAGE / room).glob("*.py")]:
        names = set(_imports(path))
        above = [name for name in names for folder in folders if name.startswith(f"dovetail_cuda.{folder}")]
        assert above == [], path.name
        assert not {name.partition(".")[0] for name in names} & {"triton", "onnx", "onnx_ir", "torch"}, path.name


def test_only_what_compiles_imports_triton() -> None:
    importers = {
        str(path.relative_to(PACKAGE).parent)
        for path in SOURCES
        if "triton" in {name.partition(".")[0] for name in _imports(path)}
    }
    assert importers == {"compile", "kernels"}


def test_its_lock_has_pins_and_hashes_and_no_address() -> None:
    text = (ROOT / "requirements/cuda.txt").read_text(encoding="utf-8")
    assert "://" not in text
    entries = [entry for entry in text.split("\n") if entry and not entry.startswith((" ", "#"))]
    assert [entry.partition("==")[0] for entry in entries] == ["triton"]
    assert "--hash=sha256:" in text


def test_the_table_of_the_provider_names_what_is_there() -> None:
    """docs/cuda-provider.md: every point has a module and a test."""
    lines = (ROOT / "docs/cuda-provider.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")][1:]
    assert len(rows) > 20
    for point, where, test in rows:
        homes = [ROOT, *(ROOT / "packages").glob("*/src")]
        assert any((home / where).is_file() for home in homes), point
        path, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), point
