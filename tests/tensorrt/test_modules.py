"""Putting the module in place: imports, submodules, other modules of the name, and scripts as ``python`` runs them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest


def _environment() -> dict[str, str]:
    paths = (str(Path(path).resolve()) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=_environment(), timeout=100, check=False)


def _run(folder: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = folder / "script.py"
    path.write_text(textwrap.dedent(script), encoding="utf-8")
    command = [sys.executable, "-m", "dovetail_tensorrt", str(path), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=_environment(), timeout=100, check=False)


def test_install_and_uninstall() -> None:
    done = _python("""
        import sys, dovetail_tensorrt
        assert "numpy" not in sys.modules and "dovetail" not in sys.modules
        trt = dovetail_tensorrt.install()
        import tensorrt
        assert tensorrt is trt is sys.modules["dovetail_tensorrt.trt"]
        assert dovetail_tensorrt.install() is trt
        import tensorrt_dispatch, tensorrt_lean
        assert tensorrt_dispatch is tensorrt_lean is trt
        import tensorrt.tensorrt
        from tensorrt.tensorrt import ICudaEngine
        assert tensorrt.tensorrt.DataType is trt.DataType
        import cuda.bindings.runtime as runtime
        from cuda import cudart, nvrtc
        assert cudart is runtime
        dovetail_tensorrt.uninstall()
        try:
            import tensorrt
        except ModuleNotFoundError:
            print("gone")
        assert dovetail_tensorrt.install() is trt
    """)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "gone\n"


def test_another_module_of_the_name_is_left_alone() -> None:
    done = _python("""
        import sys, types, dovetail_tensorrt
        sys.modules["tensorrt"] = types.ModuleType("tensorrt")
        try:
            dovetail_tensorrt.install()
        except dovetail_tensorrt.ModuleTakenError as error:
            print(error)
    """)
    assert done.returncode == 0, done.stderr
    assert "'tensorrt' is imported already" in done.stdout
    assert "fix: call dovetail_tensorrt.install() before" in done.stdout


def test_a_missing_submodule_is_missing() -> None:
    done = _python("import dovetail_tensorrt; dovetail_tensorrt.install(); import tensorrt.nothing")
    assert done.returncode == 1
    assert "ModuleNotFoundError: No module named 'tensorrt.nothing'" in done.stderr


def test_a_script_sees_what_python_would_show_it(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("NAME = 'beside'\n", encoding="utf-8")
    done = _run(
        tmp_path,
        """
        import sys, beside
        print(sys.argv[1:], __name__, __file__ == sys.argv[0], beside.NAME, __doc__)
        if __name__ == "__main__":
            sys.exit(7)
        """,
        "--flag",
        "value",
    )
    assert done.returncode == 7
    assert done.stdout == "['--flag', 'value'] __main__ True beside None\n"


def test_an_exception_is_shown_as_python_shows_it(tmp_path: Path) -> None:
    script = """
        import tensorrt as trt
        def fail():
            raise ValueError("no good")
        fail()
        """
    done = _run(tmp_path, script)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1] == f'  File "{tmp_path / "script.py"}", line 5, in <module>'
    assert lines[-1] == "ValueError: no good"
    assert "runpy" not in done.stderr


def test_a_script_that_does_not_parse_is_shown_as_python_shows_it(tmp_path: Path) -> None:
    done = _run(tmp_path, "def broken(:\n")
    assert done.returncode == 1
    assert "SyntaxError" in done.stderr
    assert "runpy" not in done.stderr


@pytest.mark.parametrize("arguments", [[], ["--unknown"]])
def test_a_wrong_command_line_is_told(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "dovetail_tensorrt", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=_environment(), timeout=100, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: python -m dovetail_tensorrt")


def test_a_script_that_is_not_there_is_told(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dovetail_tensorrt", str(tmp_path / "nothing.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=_environment(), timeout=100, check=False)
    assert done.returncode == 2
    assert "can't open file" in done.stderr


def test_a_module_is_run(tmp_path: Path) -> None:
    (tmp_path / "tool.py").write_text(
        "import sys, tensorrt\nprint(tensorrt.__name__, sys.argv[1:])\n", encoding="utf-8"
    )
    command = [sys.executable, "-m", "dovetail_tensorrt", "-m", "tool", "a"]
    done = subprocess.run(
        command, capture_output=True, text=True, env=_environment(), timeout=100, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "dovetail_tensorrt.trt ['a']\n"


CREATORS = """
    import tensorrt as trt
    from beside import Double

    class _Base(trt.IPluginCreator):
        def __init__(self, name):
            trt.IPluginCreator.__init__(self)
            self.name, self.plugin_version, self.plugin_namespace = name, "1", ""
            self.field_names = trt.PluginFieldCollection([])

        def create_plugin(self, name, fc):
            return Double(self.name)

        def deserialize_plugin(self, name, data):
            return Double(self.name)

    class DoubleCreator(_Base):
        def __init__(self):
            super().__init__("Double")
"""
BESIDE = """
    import numpy as np
    import tensorrt as trt
    from dovetail.plugin import as_array

    class Double(trt.IPluginV2DynamicExt):
        num_outputs, plugin_version, plugin_namespace = 1, "1", ""

        def __init__(self, name):
            trt.IPluginV2DynamicExt.__init__(self)
            self.plugin_type = name

        def get_output_datatype(self, index, input_types):
            return input_types[0]

        def get_output_dimensions(self, output_index, inputs, exprBuilder):
            return inputs[0]

        def supports_format_combination(self, pos, in_out, num_inputs):
            return in_out[pos].type == trt.float32 and in_out[pos].format == trt.TensorFormat.LINEAR

        def configure_plugin(self, inp, out):
            pass

        def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
            np.multiply(as_array(inputs[0], input_desc[0]), 2, out=as_array(outputs[0], output_desc[0]))

        def serialize(self):
            return b""

        def clone(self):
            return Double(self.plugin_type)
"""


def test_a_plugin_file_that_imports_tensorrt_is_checked_as_it_is(tmp_path: Path) -> None:
    """Its module lies beside it, and the class that its creators derive from is no creator."""
    (tmp_path / "creators.py").write_text(textwrap.dedent(CREATORS), encoding="utf-8")
    (tmp_path / "beside.py").write_text(textwrap.dedent(BESIDE), encoding="utf-8")
    code = "import sys; from dovetail.cli import main; sys.exit(main(['check', sys.argv[1]]))"
    done = _python(code, str(tmp_path / "creators.py"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 failed" in done.stdout
