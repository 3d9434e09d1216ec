"""The package's own description agrees with the lock file, with the code and with what the README installs."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

import dovetail

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = (ROOT / "packages/dovetail/pyproject.toml").read_text(encoding="utf-8")
PROJECT: dict[str, Any] = tomllib.loads(PYPROJECT)["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
RUN_TIME = {"ml-dtypes", "msgspec", "numpy", "xxhash"}


def _locked() -> dict[str, Version]:
    text = (ROOT / "requirements/dev.txt").read_text(encoding="utf-8")
    return {
        name: Version(version) for name, version in re.findall(r"^([a-z0-9-]+)==([\w.+]+)", text, flags=re.MULTILINE)
    }


def _direct() -> list[Requirement]:
    lines = [*PROJECT["dependencies"], *(line for extra in EXTRAS.values() for line in extra)]
    return [requirement for requirement in map(Requirement, lines) if requirement.name != "dovetail-engine"]


@pytest.mark.parametrize("requirement", _direct(), ids=str)
def test_the_lock_satisfies_every_dependency(requirement: Requirement) -> None:
    version = _locked().get(canonicalize_name(requirement.name))
    assert version is not None, "not locked: run `make lock`"
    assert version in requirement.specifier


def test_the_lock_holds_every_tool_that_was_asked_for() -> None:
    lines = (ROOT / "requirements/dev.in").read_text(encoding="utf-8").splitlines()
    asked = {canonicalize_name(Requirement(line).name) for line in lines if line and not line.startswith("#")}
    assert asked - set(_locked()) == set()


def test_running_a_plan_needs_four_packages() -> None:
    assert {canonicalize_name(Requirement(line).name) for line in PROJECT["dependencies"]} == RUN_TIME


def test_every_dependency_has_a_lower_bound_and_no_pin() -> None:
    assert [str(r) for r in _direct() if {s.operator for s in r.specifier} != {">="}] == []


def test_all_is_every_other_extra() -> None:
    (everything,) = map(Requirement, EXTRAS["all"])
    assert (everything.name, everything.extras) == ("dovetail-engine", EXTRAS.keys() - {"all"})


def test_nothing_installs_the_other_project_that_is_called_dovetail() -> None:
    # Another project has that name on the registry: ours is dovetail-engine, and only its folder is called dovetail.
    installed = re.compile(r"(pip|uv)\b[^\n]*\binstall\b[^\n]*[\s\"'`]dovetail(?![\w./-])")
    required = re.compile(r"(?<![\w./-])dovetail(\[[a-z]|[<>=~!]=)")
    texts = [(path, path.read_text(encoding="utf-8")) for path in _written_files()]
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()[:100]}"
        for path, text in texts
        for line in text.splitlines()
        if installed.search(line) or required.search(line)
    ]
    assert len(texts) > 500
    assert found == []


def _written_files() -> list[Path]:
    folders = ("packages", "examples", "docs", "tests", "tools", "benchmarks", "requirements")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*")] + list(ROOT.glob("*"))
    is_text = {".py", ".md", ".toml", ".in", ".txt", ".ipynb", ""}
    return [p for p in files if p.is_file() and p.suffix in is_text and p.name not in ("test_packaging.py", "LICENSE")]


def test_the_version_is_written_once() -> None:
    assert PROJECT["dynamic"] == ["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", dovetail.__version__)
    assert f"[{dovetail.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_package_has_the_same_version() -> None:
    files = [path for name in ("_version.py", "__init__.py") for path in ROOT.glob(f"packages/*/src/*/{name}")]
    texts = {
        path: re.findall(r'^__version__ = "(.*)"$', path.read_text(encoding="utf-8"), re.MULTILINE) for path in files
    }
    versions = {path.parent.name: found[0] for path, found in texts.items() if found}
    packages = {path.parent.name for path in (ROOT / "packages").glob("*/src/*/__init__.py")}
    assert versions == dict.fromkeys(packages, dovetail.__version__), "run tools/set_version"


def test_supported_pythons_agree() -> None:
    classified = {c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)}
    matrix = re.search(r"for version in ([\d. ]+);", (ROOT / "tools/matrix").read_text(encoding="utf-8"))
    assert matrix is not None
    assert set(matrix[1].split()) == classified
    supported = SpecifierSet(PROJECT["requires-python"])
    assert all(version in supported for version in classified)
    assert "3.10" not in supported


def test_the_wheel_holds_every_module_header_and_the_licence(tmp_path: Path) -> None:
    package = ROOT / "packages/dovetail"
    program = "import sys, hatchling.build; hatchling.build.build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=package, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    modules = {path.relative_to(package / "src").as_posix() for path in package.glob("src/dovetail/**/*.py")}
    headers = {path.relative_to(package / "src").as_posix() for path in package.glob("src/dovetail/include/**/*.h*")}
    assert {"dovetail/include/NvInfer.h", "dovetail/include/dovetail/runtime/context.hpp"} <= headers
    assert (modules | headers) - packed == set()
    assert "dovetail/py.typed" in packed
    pages = {f"dovetail/plugin/check/pages/{path.name}" for path in (ROOT / "docs/rules").glob("R*.md")}
    assert len(pages) > 60
    assert pages - packed == set()
    assert [name for name in packed if name.endswith("licenses/LICENSE")]
    assert [name for name in packed if not name.startswith(("dovetail/", "dovetail_engine-"))] == []
