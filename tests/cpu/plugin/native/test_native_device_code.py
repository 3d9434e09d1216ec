"""C++ plugins that need a CUDA device, on a machine without one: an error instead of uninitialised memory."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail as dt
from dovetail.cli import main
from dovetail.errors import PluginError
from dovetail.loggers import Logger, Severity
from dovetail.plugin.check import check_path
from dovetail.plugin.libraries import PluginLibrary
from dovetail.plugin.registry import get_plugin_registry
from dovetail.testing import host_device
from tests.support.native_libraries import Compile

X = np.arange(6, dtype=np.float32).reshape(2, 3)
TYPES = {"float": np.float32, "float16": np.float16, "int32": np.int32, "int64": np.int64, "int8": np.int8}


def make_model(op: str, element: str = "float", shape: str = "2,3") -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
        g ({element}[{shape}] x) => ({element}[{shape}] y, {element}[{shape}] z) {{ y, z = own.{op}(x) }}"""
    )


def load(path: Path) -> Iterator[PluginLibrary]:
    registry = get_plugin_registry()
    library = registry.load_library(path)
    yield library
    registry.deregister_library(library)


@pytest.fixture
def marked(compile_library: Compile) -> Iterator[PluginLibrary]:
    yield from load(compile_library("device", "-DMARKED"))


@pytest.fixture
def hidden(compile_library: Compile) -> Iterator[PluginLibrary]:
    yield from load(compile_library("device"))


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    texts: list[str] = []

    def keep(self: Logger, severity: Severity, msg: str) -> None:
        texts.append(msg)

    monkeypatch.setattr(Logger, "log", keep)
    return texts


@pytest.mark.parametrize("strict", [False, True])
def test_a_build_for_the_host_refuses_cuda_code(marked: PluginLibrary, strict: bool) -> None:
    with pytest.raises(PluginError, match="contains CUDA code, and the plugin would run on the host") as caught:
        dt.compile(make_model("WritesAll"), strict=strict)
    assert "WritesAll" in str(caught.value)
    assert str(caught.value).count("fix: ") == 1
    assert "--target" in str(caught.value)


def test_the_builder_refuses_cuda_code(marked: PluginLibrary) -> None:
    builder = dt.Builder()
    network = builder.create_network()
    plugin = marked.creators[3].create_plugin("p", dt.PluginFieldCollection(), dt.TensorRTPhase.BUILD)
    layer = network.add_plugin_v3([network.add_input("x", dt.float32, (2, 3))], [], plugin)
    network.mark_output(layer.get_output(0))
    with pytest.raises(PluginError, match="contains CUDA code"):
        builder.build_serialized_network(network, builder.create_builder_config())


def test_the_command_line_refuses_cuda_code(
    compile_library: Compile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library = str(compile_library("device", "-DMARKED"))
    onnx.save(make_model("WritesAll"), tmp_path / "m.onnx")
    command = ["build", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.plan"), "--plugins", library]
    assert main(command) != 0
    assert "contains CUDA code" in capsys.readouterr().err
    assert not (tmp_path / "m.plan").exists()
    assert main(["check", f"{library}:WritesAll", "--shapes", "2x3"]) != 0
    written = capsys.readouterr()
    assert "contains CUDA code" in written.out + written.err


def test_the_checker_refuses_cuda_code(marked: PluginLibrary) -> None:
    with pytest.raises(PluginError, match="contains CUDA code"):
        check_path(f"{marked.path}:WritesAll", shapes=["2x3"])


def test_a_device_runs_cuda_code_and_its_plan_is_refused_on_the_host(compile_library: Compile) -> None:
    registry = get_plugin_registry()
    library = registry.load_library(compile_library("device", "-DMARKED"))
    try:
        with host_device():
            engine = dt.compile(make_model("WritesAll"), providers=["host_device", "cpu"])
            assert [step.provider for step in engine.manifest.programs[0].steps if step.kind == "plugin"] == [
                "host_device"
            ]
    finally:
        registry.deregister_library(library)


@pytest.mark.parametrize("carried", [False, True])
def test_a_plan_for_the_host_refuses_cuda_code_when_it_is_loaded(
    compile_library: Compile, carried: bool, tmp_path: Path
) -> None:
    """The plan was built with a library of the same plugins that is compiled for the CPU."""
    registry = get_plugin_registry()
    library = registry.load_library(compile_library("device"))
    plan = dt.compile(make_model("WritesAll")).serialize()
    registry.deregister_library(library)
    library = registry.load_library(compile_library("device", "-DMARKED"))
    try:
        with pytest.raises(PluginError, match="contains CUDA code") as caught:
            dt.Runtime().deserialize_cuda_engine(bytes(plan))
        assert "WritesAll" in str(caught.value)
    finally:
        registry.deregister_library(library)


@pytest.mark.parametrize(
    ("name", "refused"), [("libcublas.so.12", True), ("libcudart.so.12", True), ("libm.so.6", False)]
)
def test_a_library_that_is_linked_with_one_of_cuda_is_refused(
    compile_library: Compile, name: str, refused: bool
) -> None:
    needed = compile_library("future", f"-Wl,-soname,{name}")
    kept = ctypes.CDLL(str(needed))  # the linker finds it by its name
    registry = get_plugin_registry()
    library = registry.load_library(compile_library("device", "-Wl,--no-as-needed", str(needed)))
    try:
        if refused:
            with pytest.raises(PluginError, match="contains CUDA code"):
                dt.compile(make_model("WritesAll"))
        else:
            assert len(dt.compile(make_model("WritesAll"))(X)) == 2
    finally:
        registry.deregister_library(library)
    assert kept is not None


def run(op: str, element: str, **options: Any) -> Any:
    x = np.arange(1, 7).reshape(2, 3).astype(TYPES[element])
    return dt.compile(make_model(op, element), **options)(x)


@pytest.mark.parametrize("element", TYPES)
def test_a_plugin_that_writes_nothing_is_an_error(hidden: PluginLibrary, element: str) -> None:
    with pytest.raises(PluginError, match="enqueue returned success and wrote none of its outputs") as caught:
        run("WritesNothing", element)
    assert str(caught.value).count("fix: ") == 1
    assert "WritesNothing" in str(caught.value)


def test_a_plugin_that_writes_nothing_is_an_error_in_shapes_of_a_run(hidden: PluginLibrary) -> None:
    model = make_model("WritesNothing", shape="n,3")
    with pytest.raises(PluginError, match="wrote none of its outputs"):
        dt.compile(model, shapes={"x": ((1, 3), (2, 3), (4, 3))})(X)


@pytest.mark.parametrize("element", TYPES)
def test_an_output_that_is_not_written_is_reported(hidden: PluginLibrary, element: str, warnings: list[str]) -> None:
    y, z = run("WritesFirstOutput", element).values()
    assert y.ravel().tolist() == [1, 2, 3, 4, 5, 6]
    assert any("enqueue wrote no element of output 1" in text for text in warnings), warnings
    if element.startswith("float"):
        assert np.isnan(z).all()


def test_elements_that_are_not_written_are_reported(hidden: PluginLibrary, warnings: list[str]) -> None:
    y, _ = run("WritesFirstElement", "float").values()
    assert any("enqueue wrote 1 of 6 elements of output 0" in text for text in warnings), warnings
    assert np.isnan(y.ravel()[1:]).all()


def test_only_the_first_run_over_a_shape_is_checked(hidden: PluginLibrary, warnings: list[str]) -> None:
    engine = dt.compile(make_model("WritesFirstOutput"))
    engine(X)
    count = len(warnings)
    engine(X)
    assert len(warnings) == count


@pytest.mark.parametrize("element", TYPES)
def test_a_plugin_that_writes_all_is_not_reported(hidden: PluginLibrary, element: str, warnings: list[str]) -> None:
    for result in run("WritesAll", element).values():
        assert result.ravel().tolist() == [1, 2, 3, 4, 5, 6]
    assert not any("enqueue wrote" in text for text in warnings)


def test_a_result_that_equals_the_pattern_is_no_error(hidden: PluginLibrary) -> None:
    x = np.full((1, 1), -91, np.int8)  # 0xA5
    for result in dt.compile(make_model("WritesAll", "int8", "1,1"))(x).values():
        assert result.tolist() == [[-91]]
