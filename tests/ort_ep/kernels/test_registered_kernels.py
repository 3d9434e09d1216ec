"""What ONNX Runtime itself lists of the kernels, and the report that compares the list with a back end's own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import onnxruntime as ort
import pytest

from dovetail.cli import main
from dovetail.provider.loader import get_provider
from dovetail.providers.onnxruntime import plugin_eps
from onnxruntime_ep_dovetail.kernels.route import KernelTable
from tests.support.ort_ep import EP
from tests.support.ort_ep_models import plain_model

STATE = ort.capi.onnxruntime_pybind11_state
pytestmark = [
    pytest.mark.versions,
    pytest.mark.skipif(
        not hasattr(STATE, "get_registered_ep_kernel_defs"),
        reason="this ONNX Runtime does not list kernels of execution providers",
    ),
]


@pytest.fixture
def definitions(registration: str) -> list[Any]:
    found: list[Any] = STATE.get_registered_ep_kernel_defs(EP)
    return found


def test_every_kernel_is_listed(definitions: list[Any]) -> None:
    listed = {(definition.op_name, definition.domain) for definition in definitions}
    kernels = {(kernel.op, kernel.domain) for kernel in get_provider("cpu").kernels}
    assert len(definitions) > 500
    assert listed <= kernels | {("If", ""), ("Loop", ""), ("Scan", "")}
    assert {("Conv", ""), ("Conv", "com.ms.internal.nhwc"), ("FastGelu", "com.microsoft"), ("If", "")} <= listed
    assert {definition.provider for definition in definitions} == {EP}


def test_versions_and_types_are_those_of_the_schema(definitions: list[Any]) -> None:
    relu = {
        definition.version_range: definition.type_constraints
        for definition in definitions
        if definition.op_name == "Relu"
    }
    assert sorted(relu) == [(6, 6), (13, 13), (14, 14)]
    assert "tensor(float)" in relu[(14, 14)]["T"]
    versions = {(s.domain, s.name, s.since_version) for s in STATE.get_all_operator_schema()}
    plain = [definition for definition in definitions if definition.domain == ""]
    assert {("", one.op_name, one.version_range[0]) for one in plain} <= versions


def test_no_type_is_one_that_is_no_whole_bytes(definitions: list[Any]) -> None:
    types = {name for one in definitions for names in one.type_constraints.values() for name in names}
    assert "tensor(float8e4m3fn)" in types
    assert types.isdisjoint({"tensor(string)", "tensor(int4)", "tensor(uint4)", "tensor(int2)", "tensor(uint2)"})


def test_the_compile_route_does_not_wait_for_the_list(
    dovetail_session: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: Any) -> Any:
        raise AssertionError("nobody asked for kernels")

    monkeypatch.setattr(KernelTable, "find", refuse)
    dovetail_session(plain_model(), claim="all")


def test_the_parity_report_reads_the_list(registration: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parity", "cpu", f"ort-ep:{EP}", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    rows = {(row["domain"], row["op"]): row for row in document["ops"]}
    assert rows["ai.onnx", "Sigmoid"]["status"] == "same"
    assert rows["ai.onnx", "If"]["status"] == "only_b"
    assert rows["ai.onnx", "SequenceInsert"]["status"] == "only_a"
    assert "int4" in rows["ai.onnx", "Cast"]["type_differences"][0]["only_a"]
    assert document["total"]["both"] > 250


def test_the_parity_report_finds_the_package_by_itself() -> None:
    words = [sys.executable, "-m", "dovetail", "parity", f"ort-ep:{EP}", "onnx", "--op", "Relu", "--json"]
    result = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["ops"][0]["a"]["versions"] == [6, 13, 14]


def test_an_unknown_execution_provider_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parity", "cpu", "ort-ep:NobodyExecutionProvider"]) != 0
    error = capsys.readouterr().err
    assert "NobodyExecutionProvider" in error
    assert EP in error, "what there is helps"


def test_a_library_that_does_not_load_is_an_error_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = ModuleType("onnxruntime_ep_broken")
    broken.get_ep_names = lambda: ["BrokenExecutionProvider"]  # type: ignore[attr-defined]
    broken.get_library_path = lambda: str(tmp_path / "nothing.so")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, broken.__name__, broken)
    monkeypatch.setattr(plugin_eps, "_find_packages", lambda: [broken])
    assert main(["parity", "cpu", "ort-ep:BrokenExecutionProvider"]) == 2
    error = capsys.readouterr().err
    assert "ONNX Runtime does not load it" in error
    assert "internal" not in error
