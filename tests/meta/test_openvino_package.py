"""The OpenVINO provider is written as by an outsider: small, and over the public contract alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "packages/dovetail-openvino/src").rglob("*.py"))
MOST_LINES = 800
ALLOWED = ("dovetail.provider.", "dovetail.errors", "dovetail.types", "dovetail.allocators", "dovetail_openvino")
OUTSIDE = {"__future__", "collections", "ctypes", "dataclasses", "functools", "numpy", "onnx", "onnx_ir", "openvino"}
OUTSIDE |= {"re", "time", "typing"}


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "."


def test_it_is_small() -> None:
    assert SOURCES
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES) <= MOST_LINES


def test_it_imports_the_public_contract_alone() -> None:
    names = {name for path in SOURCES for name in _imports(path)}
    assert "dovetail.provider.interfaces" in names
    assert [n for n in sorted(names) if not n.startswith(ALLOWED) and n.partition(".")[0] not in OUTSIDE] == []


def test_its_lock_has_pins_and_hashes_and_no_address() -> None:
    text = (ROOT / "requirements/openvino.txt").read_text(encoding="utf-8")
    assert "://" not in text
    entries = [entry for entry in text.split("\n") if entry and not entry.startswith((" ", "#"))]
    assert [entry.partition("==")[0] for entry in entries] == ["openvino", "openvino-telemetry"]
    assert all("--hash=sha256:" in part for part in text.split("openvino")[2:] if "==" in part)
