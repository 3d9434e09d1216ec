"""The wheel: what lies in it, that it works where no compiler is, and what a build says that has none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import onnxruntime_ep_dovetail

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "packages/onnxruntime-ep-dovetail"
FOLDER = "onnxruntime_ep_dovetail/library/"
EXTENSION = f"{FOLDER}_compute{sysconfig.get_config_var('EXT_SUFFIX')}"
LIBRARY = f"{FOLDER}libdovetail_ep.so"
WITHOUT_COMPILER = {"PATH": "/nowhere", "CC": ""}


def _build(target: Path, what: str = "wheel", package: Path = PACKAGE, **variables: str) -> str:
    """Build into a folder and return what was printed; a build that fails leaves nothing there."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", what, "--directory", str(target)]
    environment = {**os.environ, **variables}
    done = subprocess.run(command, cwd=package, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == any(target.glob("*")), done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    _build(folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_the_wheel_is_for_one_python_and_holds_what_it_compiled(wheel: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert wheel.name.startswith(f"onnxruntime_ep_dovetail-{onnxruntime_ep_dovetail.__version__}-{tag}-{tag}")
    # Nothing of the machine that built it: neither another Python's extension nor a record of where Python lies.
    assert {name for name in packed if name.startswith(FOLDER) and not name.endswith((".py", ".pyi"))} == {
        EXTENSION,
        LIBRARY,
    }
    modules = {path.relative_to(PACKAGE / "src").as_posix() for path in PACKAGE.glob("src/**/*.py")}
    assert modules - packed == set()
    assert {"onnxruntime_ep_dovetail/py.typed", "onnxruntime_ep_dovetail/abi/table.json"} <= packed
    assert [entry for entry in packed if entry.endswith("licenses/LICENSE")]


SESSION = """
import numpy, onnx.parser, onnxruntime
import dovetail, onnxruntime_ep_dovetail

@dovetail.layer("Double")
def double(x):
    return 2 * x

text = '''<ir_version: 10, opset_import: ["": 18, "dovetail.plugins": 1]>
graph (float[n] x) => (float[n] y) { t = Neg(x)  y = dovetail.plugins.Double(t) }'''
model = onnx.parser.parse_model(text).SerializeToString()
onnxruntime.register_execution_provider_library("dovetail", onnxruntime_ep_dovetail.get_library_path())
devices = [d for d in onnxruntime.get_ep_devices() if d.ep_name == onnxruntime_ep_dovetail.get_ep_name()]
options = onnxruntime.SessionOptions()
options.add_provider_for_devices(devices[:1], {})
session = onnxruntime.InferenceSession(model, options)
print(dovetail.__file__, onnxruntime_ep_dovetail.__file__)
print(session.run(None, {"x": numpy.float32([1, 2])})[0].tolist())
"""


def test_an_installed_wheel_runs_a_session_where_no_compiler_is(wheel: Path, tmp_path: Path) -> None:
    _build(tmp_path / "dist", package=ROOT / "packages/dovetail")
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    # The dependencies are those of this environment; its Dovetail is not, because nobody reads its .pth files there.
    folder = Path(sysconfig.get_path("purelib", vars={"base": str(venv)}))
    (folder / "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    python = str(venv / "bin" / "python")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")} | WITHOUT_COMPILER
    (engine,) = (tmp_path / "dist").iterdir()
    install = [sys.executable, "-m", "pip", "--python", python, "install", "-qq", "--no-deps", "--no-index"]
    subprocess.run([*install, "--disable-pip-version-check", str(engine), str(wheel)], check=True, env=environment)
    command = [python, "-W", "error", "-c", SESSION]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    places, result = done.stdout.splitlines()
    assert all(place.startswith(str(folder)) for place in places.split())
    assert result == "[-2.0, -4.0]"


def test_a_source_install_without_a_compiler_says_so_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--no-build-isolation"]
    command += ["--disable-pip-version-check", "--target", str(tmp_path / "site"), str(PACKAGE)]
    environment = {**os.environ, **WITHOUT_COMPILER}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "[1 lines of output]" in done.stderr
    assert (
        "onnxruntime-ep-dovetail: a C compiler is needed to build it from source, and none was found: "
        "install gcc or clang, or a wheel\n" in done.stderr
    )
    assert "Traceback" not in done.stderr


def test_a_compiler_that_is_named_and_missing_is_named(tmp_path: Path) -> None:
    printed = _build(tmp_path, CC="no-such-compiler -m64")
    assert printed == (
        "onnxruntime-ep-dovetail: a C compiler is needed to build it from source, and CC names "
        "'no-such-compiler -m64', which is not there: install gcc or clang, or a wheel\n"
    )


def test_a_compiler_that_fails_fails_the_build(tmp_path: Path) -> None:
    printed = _build(tmp_path, CC="false --as-compiler")
    assert "false --as-compiler -O2" in printed
    assert "library.c" in printed


def test_the_source_archive_can_build_itself(tmp_path: Path) -> None:
    _build(tmp_path, "sdist")
    (archive,) = tmp_path.glob("*.tar.gz")
    listed = subprocess.run(["tar", "-tzf", str(archive)], capture_output=True, text=True, check=True).stdout.split()
    names = {name.partition("/")[2] for name in listed}
    assert {"hatch_build.py", f"src/{FOLDER}library.c", f"src/{FOLDER}compute.c", "README.md", "LICENSE"} <= names
    assert [name for name in names if name.endswith((".so", ".python"))] == []


def test_a_package_without_its_compiled_part_says_what_to_install(tmp_path: Path) -> None:
    left_out = shutil.ignore_patterns("*.so")
    shutil.copytree(PACKAGE / "src" / "onnxruntime_ep_dovetail", tmp_path / "onnxruntime_ep_dovetail", ignore=left_out)
    program = "import onnxruntime_ep_dovetail as ep; print(ep.__file__); ep.get_library_path()"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.startswith(str(tmp_path))
    assert "ResourceError: the compiled part of onnxruntime-ep-dovetail is not there for this Python" in done.stderr
    assert "fix: install a wheel for this version of Python" in done.stderr
