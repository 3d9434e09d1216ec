"""The server is written over what Dovetail offers to packages, and its locks are locks."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "packages/dovetail-serve"
SOURCES = sorted((PACKAGE / "src").rglob("*.py"))
OFFERED = (
    "dovetail",
    "dovetail.cli",
    "dovetail.decoding",
    "dovetail.errors",
    "dovetail.escapes",
    "dovetail.expr",
    "dovetail.files",
    "dovetail.inputs",
    "dovetail.loggers",
    "dovetail.near_names",
    "dovetail.plan",
    "dovetail.plugin",
    "dovetail.provider",
    "dovetail.runtime.engine",
    "dovetail.runtime.loading",
    "dovetail.units",
)
"""Public names, the parts of commands, what reads inputs and loads plans, and helpers: nothing of builds and steps."""
FOREIGN = {"google", "grpc", "ml_dtypes", "msgspec", "numpy", "prometheus_client", "starlette", "uvicorn", "xxhash"}
EXTRAS = {"opentelemetry", "PIL", "pyarrow", "ray", "onnx", "rich"}
"""What is imported where it is used, or in a module that only an extra needs."""
LOCKS = ("serve", "serve-client", "serve-ray")


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "."


def _all_imports() -> dict[str, str]:
    return {name: str(path.relative_to(PACKAGE)) for path in SOURCES for name in _imports(path)}


def test_it_uses_what_dovetail_offers() -> None:
    ours = {name: path for name, path in _all_imports().items() if name.partition(".")[0] == "dovetail"}
    assert "dovetail.errors" in ours
    is_offered = [
        name for name in ours if name in OFFERED or name.startswith(tuple(f"{each}." for each in OFFERED[1:]))
    ]
    assert {name: path for name, path in ours.items() if name not in is_offered} == {}


def test_it_imports_the_libraries_that_it_depends_on() -> None:
    known = FOREIGN | EXTRAS | sys.stdlib_module_names | {"dovetail", "dovetail_serve"}
    found = {name: path for name, path in _all_imports().items() if name.partition(".")[0] not in known}
    assert found == {}


def test_dovetail_imports_nothing_of_it() -> None:
    sources = sorted((ROOT / "packages/dovetail/src").rglob("*.py"))
    names = {name for path in sources for name in _imports(path)}
    assert sources
    assert not any(name.startswith("dovetail_serve") for name in names)


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_has_pins_and_hashes_and_no_address(name: str) -> None:
    text = (ROOT / f"requirements/{name}.txt").read_text(encoding="utf-8")
    assert "://" not in text
    entries = [entry for entry in re.split(r"\n(?=\S)", text) if entry.strip() and not entry.startswith("#")]
    assert len(entries) > 5
    for entry in entries:
        assert re.match(r"[a-z0-9-]+==[\w.+]+", entry), entry.splitlines()[0]
        assert "--hash=sha256:" in entry, entry.splitlines()[0]


def test_what_it_depends_on_is_locked() -> None:
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["tracing"]]
    names = {re.match(r"[\w-]+", each)[0] for each in wanted} - {"dovetail-engine"}
    locked = "".join((ROOT / f"requirements/{name}.txt").read_text(encoding="utf-8") for name in ("dev", "serve"))
    assert [name for name in sorted(names) if not re.search(rf"^{name}==", locked, flags=re.MULTILINE)] == []


def test_the_page_is_in_the_package() -> None:
    assets = PACKAGE / "src/dovetail_serve/page/assets"
    assert {"page.html", "style.css", "main.js"} <= {path.name for path in assets.iterdir()}
