"""The program that runs plans from C++, compiled once, and the plans that it runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import ModelProto, TensorProto, helper

import dovetail as dt
from tests.support import native_libraries
from tests.support.native_libraries import Compile
from tests.support.native_programs import compile_program

SANITIZED = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@pytest.fixture(
    scope="session", params=[(), pytest.param(SANITIZED, marks=pytest.mark.slow)], ids=["plain", "sanitized"]
)
def driver(request: pytest.FixtureRequest) -> Path:
    """The compiled program; with sanitizers too where there is time for it."""
    return compile_program(Path(__file__).parent / "driver.cpp", *request.param)


@pytest.fixture(scope="session")
def compile_library() -> Compile:
    """Compiles a plugin library by its name."""
    return native_libraries.compile_library


def make_model(op: str, rows: int | str = "n", domain: str = "") -> ModelProto:
    """One node over rows of three numbers."""
    ports = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, 3])] for name in "xy"]
    node = helper.make_node(op, ["x"], ["y"], domain=domain, **({"mode": ""} if domain else {}))
    opsets = [helper.make_opsetid("", 17), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(helper.make_graph([node], op.lower(), *ports), opset_imports=opsets)


@pytest.fixture(scope="session")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``relu.plan`` and ``neg.plan``, which take any number of rows."""
    folder = tmp_path_factory.mktemp("plans")
    for op in ("Relu", "Neg"):
        dt.compile(make_model(op), providers=["cpu"]).save(folder / f"{op.lower()}.plan")
    return folder
