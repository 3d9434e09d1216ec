"""A program in C registers the library, which starts Python by itself; it runs a model, and failures are statuses."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import onnx
import onnx.helper as oh
import onnxruntime
import pytest

from onnxruntime_ep_dovetail.abi.table import FLOOR, load_table
from onnxruntime_ep_dovetail.library import LIBRARY_NAME, find_library, host

HOST = Path(__file__).parent / "host.c"
LIBRARY = find_library()
RUNTIME = next(iter((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*")), None)
COMPILER = shutil.which("cc") or shutil.which("gcc")

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="there is no C compiler here"),
    pytest.mark.skipif(RUNTIME is None, reason="this onnxruntime has no library for C programs"),
    pytest.mark.skipif(host.find_libpython() is None, reason="this Python has no shared library to start"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("host")
    slots = "".join(f"  SLOT_{slot.name} = {slot.index},\n" for slot in load_table()["OrtApi"])
    (folder / "slots.h").write_text(f"enum {{\n{slots}  API_VERSION = {FLOOR},\n}};\n", encoding="ascii")
    command = [str(COMPILER), "-O1", "-Wall", "-Werror", f"-I{folder}", "-o", str(folder / "host"), str(HOST)]
    subprocess.run([*command, "-ldl", "-lpthread"], check=True)
    return folder / "host"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    x, y = (oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 3]) for name in "xy")
    graph = oh.make_graph([oh.make_node("Mul", ["x", "x"], ["y"])], "squares", [x], [y])
    path = tmp_path / "squares.onnx"
    onnx.save(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 21)], ir_version=10), path)
    return path


def _copy_library(folder: Path) -> Path:
    """Put the library where only a record that the test writes can lie beside it."""
    folder.mkdir(exist_ok=True, parents=True)
    return Path(shutil.copy(LIBRARY, folder / LIBRARY_NAME))


def _run(program: Path, library: Path, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    # The host has no Python of its own, so nothing of the one that runs the test may leak into it.
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "DOVETAIL", "VIRTUAL_ENV"))
    }
    command = [str(program), str(RUNTIME), str(library), *map(str, arguments)]
    return subprocess.run(
        command, env={**kept, **variables}, capture_output=True, text=True, timeout=100, check=False, cwd=program.parent
    )


def _variables() -> dict[str, str]:
    facts = host.describe_python()
    return {"DOVETAIL_EP_LIBPYTHON": facts["libpython"], "DOVETAIL_EP_PYTHON": facts["executable"]}


def test_a_c_program_runs_a_model_from_several_threads(program: Path, model: Path, tmp_path: Path) -> None:
    library = _copy_library(tmp_path / "copy")
    finished = _run(program, library, model, 3, 50, **_variables())
    assert finished.stdout.splitlines() == [
        "registered",
        "devices: 1",
        "0 1 4 9 16 25 ",
        "threads with wrong results: 0",
        "done",
    ], finished.stderr
    assert finished.returncode == 0


def test_the_record_beside_the_library_names_the_python(program: Path, model: Path, tmp_path: Path) -> None:
    library = _copy_library(tmp_path / 'it\'s a "copy" with ü %s')
    assert host.write_record(library.parent) == library.parent / host.RECORD_NAME
    finished = _run(program, library, model, 1, 1)
    assert "0 1 4 9 16 25" in finished.stdout, finished.stdout + finished.stderr
    assert finished.returncode == 0


STUB = """
import sys, threading
def install(path):
    {body}
"""


def _stub(folder: Path, body: str) -> str:
    package = folder / "onnxruntime_ep_dovetail"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "install.py").write_text(STUB.format(body=body), encoding="utf-8")
    return str(folder)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise ValueError('one\\ntwo, with ü')", "ValueError: one\ntwo, with ü (Python "),
        ("sys.exit(5)", "SystemExit: 5 (Python "),
        ("import nowhere_to_be_found", "ModuleNotFoundError: No module named 'nowhere_to_be_found' (Python "),
        ("pass", "onnxruntime_ep_dovetail.install did not fill the entry points of '"),
        ("raise RuntimeError(f'{path!r} {sys.prefix!r}')", repr(sys.prefix)),
    ],
    ids=["raises", "exits", "imports", "does nothing", "knows its virtual environment"],
)
def test_what_the_python_side_raises_becomes_a_status(program: Path, tmp_path: Path, body: str, message: str) -> None:
    library = _copy_library(tmp_path / "copy")
    folder = _stub(tmp_path, body)
    finished = _run(program, library, **_variables(), PYTHONPATH=folder)
    assert finished.returncode == 3
    assert finished.stdout.startswith("status 1: Dovetail: ")
    assert message in finished.stdout
    assert finished.stderr == ""


def test_without_any_python_the_status_says_what_to_set(program: Path, tmp_path: Path) -> None:
    finished = _run(program, _copy_library(tmp_path / "copy"))
    assert finished.returncode == 3
    assert "set DOVETAIL_EP_LIBPYTHON to the path of libpython" in finished.stdout
    assert "onnxruntime_ep_dovetail.library.host" in finished.stdout


def test_a_wrong_libpython_is_named(program: Path, tmp_path: Path) -> None:
    library = _copy_library(tmp_path / "copy")
    wrong = str(tmp_path / ("long " * 40) / ("libpython" * 20 + ".so"))
    finished = _run(program, library, DOVETAIL_EP_LIBPYTHON=wrong)
    assert finished.stdout.startswith(f"status 1: Dovetail: cannot load libpython from '{wrong}' (")
    finished = _run(program, library, DOVETAIL_EP_LIBPYTHON=str(RUNTIME))
    assert "lacks Py_IsInitialized" in finished.stdout
    assert finished.returncode == 3


@pytest.mark.parametrize("text", ["", "libpython\n", "=\n\nlibpython=\n", "\0\xff" * 5000, "executable=x"])
def test_a_damaged_record_is_as_good_as_none(program: Path, tmp_path: Path, text: str) -> None:
    library = _copy_library(tmp_path / "copy")
    (library.parent / host.RECORD_NAME).write_text(text, encoding="latin-1")
    assert "nothing names one" in _run(program, library).stdout


def test_a_python_program_need_not_import_the_package(tmp_path: Path, model: Path) -> None:
    """The library finds the interpreter of the process and imports the package by itself."""
    program = """
import sys
import numpy, onnxruntime
onnxruntime.register_execution_provider_library("dovetail", sys.argv[1])
assert "onnxruntime_ep_dovetail" in sys.modules
options = onnxruntime.SessionOptions()
options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == "DovetailExecutionProvider"]
options.add_provider_for_devices(devices[:1], {"claim": "all"})
session = onnxruntime.InferenceSession(sys.argv[2], options)
(y,) = session.run(None, {"x": numpy.full((1, 3), 3, numpy.float32)})
print(y.tolist())
"""
    command = [sys.executable, "-c", program, str(LIBRARY), str(model)]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert finished.stdout == "[[9.0, 9.0, 9.0]]\n", finished.stderr
    assert finished.returncode == 0
