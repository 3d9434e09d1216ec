"""The wheel with and without a C compiler: what lies in it, and that an installed one works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[3] / "packages/onnxruntime-ep-dovetail"
FOLDER = "onnxruntime_ep_dovetail/library/"
EXTENSION = f"{FOLDER}_compute{sysconfig.get_config_var('EXT_SUFFIX')}"
LIBRARY = f"{FOLDER}libdovetail_ep.so"
RECORD = f"{FOLDER}libdovetail_ep.python"
NATIVE = {EXTENSION, LIBRARY, RECORD}

needs_compiler = pytest.mark.skipif(
    shutil.which("cc") is None and shutil.which("gcc") is None, reason="there is no C compiler here"
)
needs_headers = pytest.mark.skipif(
    not Path(sysconfig.get_path("include"), "Python.h").is_file(), reason="this Python has no headers"
)


def _build(target: Path, what: str = "wheel", **variables: str) -> subprocess.CompletedProcess[str]:
    program = f"import sys, hatchling.build; hatchling.build.build_{what}(sys.argv[1])"
    command = [sys.executable, "-c", program, str(target)]
    environment = {**os.environ, **variables}
    return subprocess.run(command, cwd=PACKAGE, env=environment, capture_output=True, text=True, check=False)


def _build_wheel(target: Path, **variables: str) -> tuple[str, set[str]]:
    finished = _build(target, **variables)
    assert finished.returncode == 0, finished.stderr
    (wheel,) = target.glob("*.whl")
    return wheel.name, set(zipfile.ZipFile(wheel).namelist())


@needs_compiler
@needs_headers
def test_with_a_compiler_the_wheel_is_for_one_python(tmp_path: Path) -> None:
    name, packed = _build_wheel(tmp_path)
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert name.startswith(f"onnxruntime_ep_dovetail-0.1.0-{tag}-{tag}")
    assert {EXTENSION, LIBRARY} <= packed
    assert {other for other in packed if other.endswith((".so", ".python"))} <= NATIVE


@pytest.mark.parametrize(
    "variables",
    [{"DOVETAIL_EP_BUILD_NATIVE": "0"}, {"CC": "no-such-compiler", "PATH": ""}],
    ids=["unwanted", "missing"],
)
def test_without_a_compiler_the_wheel_is_for_every_python(tmp_path: Path, variables: dict[str, str]) -> None:
    name, packed = _build_wheel(tmp_path, **variables)
    assert name == "onnxruntime_ep_dovetail-0.1.0-py3-none-any.whl"
    assert packed & NATIVE == set()
    modules = {path.relative_to(PACKAGE / "src").as_posix() for path in PACKAGE.glob("src/**/*.py")}
    assert modules - packed == set()
    assert {"onnxruntime_ep_dovetail/py.typed", "onnxruntime_ep_dovetail/abi/table.json"} <= packed
    assert [entry for entry in packed if entry.endswith("licenses/LICENSE")]


def test_a_compiler_that_fails_fails_the_build(tmp_path: Path) -> None:
    finished = _build(tmp_path, CC="false --as-compiler")
    assert finished.returncode != 0
    assert "false --as-compiler -O2" in finished.stderr
    assert "library.c" in finished.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_source_archive_can_build_itself(tmp_path: Path) -> None:
    assert _build(tmp_path, "sdist").returncode == 0
    (archive,) = tmp_path.glob("*.tar.gz")
    listed = subprocess.run(["tar", "-tzf", str(archive)], capture_output=True, text=True, check=True).stdout.split()
    names = {name.partition("/")[2] for name in listed}
    assert {"hatch_build.py", f"src/{FOLDER}library.c", f"src/{FOLDER}compute.c", "README.md", "LICENSE"} <= names
    assert [name for name in names if name.endswith((".so", ".python"))] == []


@pytest.mark.parametrize("native", ["0", pytest.param("1", marks=[needs_compiler, needs_headers])])
def test_an_unpacked_wheel_finds_its_parts(tmp_path: Path, native: str) -> None:
    _build_wheel(tmp_path, DOVETAIL_EP_BUILD_NATIVE=native)
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    program = "import onnxruntime_ep_dovetail.library as l; print(l.__file__); print(l.describe()); l.load_compute()"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("DOVETAIL_EP_NATIVE", None)
    command = [sys.executable, "-c", program]
    lines = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines[0].startswith(str(tmp_path / "site"))
    where = tmp_path / ("site" if native == "1" else "cache")
    assert lines[1].startswith(f"library: {where}")
    assert lines[2].startswith("compute: _compute (" if native == "1" else "compute: fallback (")
