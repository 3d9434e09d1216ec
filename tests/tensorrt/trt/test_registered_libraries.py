"""C++ libraries that scripts only open: their creators are in the registry of the module, and tools find them."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from tests.support.native_libraries import compile_library

POLYGRAPHY = Path(sysconfig.get_path("scripts")) / "polygraphy"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model with one node that only the library's plugin implements."""
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("AddOneByPlugin", ["x"], ["y"])], "g", infos[:1], infos[1:])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def library() -> Path:
    return compile_library("registered", "-DPLUGIN=AddOneByPlugin", "-DMACRO", "-DOWN_NAMESPACE=foons")


def run(*arguments: object) -> str:
    command = [sys.executable, "-m", "dovetail_tensorrt", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("order", ["before", "after"])
def test_opened_library_is_in_the_registry(tmp_path: Path, model: Path, order: str) -> None:
    opening = f"library = ctypes.CDLL({str(library())!r})\n"
    script = tmp_path / "script.py"
    script.write_text(
        f"import ctypes\n{opening if order == 'before' else ''}import tensorrt as trt\n"
        f"{opening if order == 'after' else ''}"
        "registry = trt.get_plugin_registry()\n"
        "creator = registry.get_creator('AddOneByPlugin', '1')\n"
        "assert creator in registry.all_creators and creator.plugin_namespace == ''\n"
        "assert registry.get_creator('AddOneByPlugin', '1', 'foons') is None\n"
        "assert library.initMyPlugins(b'acme') & 1 == 1 and library.initMyPlugins(b'acme') & 1 == 0\n"
        "assert registry.get_creator('AddOneByPlugin', '1', 'acme') is not None\n"
        "assert not registry.register_creator(creator, 'acme')\n"
        "builder = trt.Builder(trt.Logger())\n"
        "network = builder.create_network(0)\n"
        "parser = trt.OnnxParser(network, trt.Logger())\n"
        f"assert parser.parse_from_file({str(model)!r})\n"
        "plan = builder.build_serialized_network(network, builder.create_builder_config())\n"
        "assert trt.Runtime(trt.Logger()).deserialize_cuda_engine(plan).num_io_tensors == 2\n"
    )
    run(script)


def test_polygraphy_finds_plugins_of_an_opened_library(model: Path) -> None:
    assert "PASSED" in run(POLYGRAPHY, "run", model, "--trt", "--plugins", library())


@pytest.mark.parametrize("flag", ["--staticPlugins", "--plugins", "--dynamicPlugins"])
def test_trtexec_finds_plugins_of_a_library(model: Path, flag: str) -> None:
    arguments = (f"--onnx={model}", f"{flag}={library()}", "--iterations=2", "--warmUp=0", "--duration=0")
    done = subprocess.run(
        [sys.executable, "-m", "dovetail", "trtexec", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert "PASSED" in done.stdout, done.stdout + done.stderr
