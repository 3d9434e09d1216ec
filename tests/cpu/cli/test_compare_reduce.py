"""``dovetail compare`` and ``dovetail reduce`` from the command line: answers, files and codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from dovetail.cli import main
from tests.support.broken_provider import broken_provider
from tests.support.cli_models import LIBRARY, write_library, write_model

MODELS = Path(__file__).parents[2] / "data" / "models"
Call = Callable[..., tuple[int, str, str]]


def wrong_softmax(x: Any, *, axis: int = -1) -> Any:
    shifted = np.exp(x - x.max(axis=axis, keepdims=True))
    return shifted / shifted.sum(axis=axis, keepdims=True) + np.float32(0.5)


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    monkeypatch.chdir(tmp_path)
    write_library(tmp_path)
    write_model(tmp_path / "small.onnx")
    (tmp_path / "crash.py").write_text(LIBRARY.replace("scale = x.dtype", "1 / 0; scale = x.dtype"))

    def run(*words: object) -> tuple[int, str, str]:
        code = main([str(word) for word in words])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


# compare


def test_a_right_model(call: Call) -> None:
    code, shown, _ = call("compare", MODELS / "vit_static.onnx", "--layers")
    assert code == 0
    assert "dovetail (onnxruntime, cpu) against onnxruntime" in shown
    assert "of which 0 differ" in shown
    assert shown.splitlines()[-1] == "close: 2 of 2 outputs"


def test_a_wrong_model_is_code_4(call: Call) -> None:
    with broken_provider({"Softmax": wrong_softmax}) as providers:
        words = ["compare", MODELS / "vit_eager.onnx", "--providers", ",".join(providers), "--layers"]
        code, shown, err = call(*words)
        coded, document, _ = call(*words, "--json")
    assert (code, coded, err) == (4, 4, "")
    assert "First to diverge: layer" in shown
    assert "(Softmax)" in shown
    assert "FAIL" in shown
    assert shown.splitlines()[-1].startswith("DIFFERENT: 2 of 2 outputs, ")
    found = json.loads(document)
    assert found["divergence"]["layer"]["op"] == "Softmax"
    assert found["divergence"]["inputs"][0]["max"] is not None
    assert found["is_close"] is False


def test_plugins_can_be_compared_with_cpu_alone(call: Call) -> None:
    code, _, err = call("compare", "small.onnx", "--plugins", "layers.py")
    assert code == 3
    assert "ONNX Runtime does not know acme::ScaledRelu" in err
    assert "fix: compare with Dovetail's own kernels: --against cpu" in err
    code, shown, _ = call("compare", "small.onnx", "--plugins", "layers.py", "--against", "cpu", "--shapes", "x:3x4")
    assert code == 0
    assert "input 'x': 3x4" in shown


def test_inputs_from_a_file(call: Call, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=np.full((6, 4), 2, np.float32))
    words = ["compare", "small.onnx", "--plugins", "layers.py", "--against", "cpu", "--inputs", "in.npz", "--json"]
    code, shown, _ = call(*words)
    assert code == 0
    assert json.loads(shown)["inputs"] == {"x": [6, 4]}


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["compare", "none.onnx"], 2, "there is no such file"),
        (["compare", "layers.py"], 2, "ONNX model"),
        (["compare", "small.onnx", "--against", "torch"], 1, "invalid choice"),
        (["compare", "small.onnx", "--atol", "-1"], 1, "at least 0"),
        (["compare", "small.onnx", "--plugins", "layers.py", "--inputs", "none.npz"], 2, "cannot be read"),
        (["compare", "small.onnx", "--plugins", "layers.py", "--shapes", "q:1x4"], 1, "there is no input 'q'"),
        (["reduce", "none.onnx"], 2, "there is no such file"),
        (["reduce", "small.onnx", "-o", "small.onnx"], 1, "would overwrite the model"),
        (["reduce", "small.onnx", "--check", "'"], 1, "the command cannot be read"),
        (["reduce", "small.onnx", "--check", " "], 1, "the command is empty"),
        (["reduce", "small.onnx", "--check", "no-such-program"], 1, "the command cannot be run"),
        (["reduce", "small.onnx", "--mode", "crash", "--check", "x"], 1, "not allowed with"),
        (["reduce", "small.onnx", "--plugins", "layers.py", "--against", "cpu"], 1, "the model does not fail"),
        (["reduce", "small.onnx", "--plugins", "layers.py", "--mode", "compare"], 3, "does not know acme::ScaledRelu"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input(call: Call, words: list[str], code: int, text: str) -> None:
    got, shown, err = call(*words)
    assert got == code
    assert text in err
    assert shown == ""
    assert len([line for line in err.splitlines() if line.startswith("error: ")]) == 1
    assert "internal error" not in err


# reduce


def test_a_crash_is_reduced_and_written(call: Call, tmp_path: Path) -> None:
    code, shown, _ = call("reduce", "small.onnx", "--plugins", "crash.py")
    assert code == 0
    assert "small.onnx: 3 nodes became 1 in " in shown
    assert "it raises BuildError" in shown
    model = onnx.load(tmp_path / "small.small.onnx")
    assert [node.op_type for node in model.graph.node] == ["ScaledRelu"]
    again = call("run", "small.small.onnx", "--plugins", "crash.py", "--inputs", "small.small.npz")
    assert again[0] == 3
    assert "ZeroDivisionError" in again[2]


def test_a_difference_is_reduced_and_can_be_compared_again(call: Call) -> None:
    with broken_provider({"Softmax": wrong_softmax}) as providers:
        chosen = ["--providers", ",".join(providers)]
        code, shown, _ = call("reduce", MODELS / "bert_eager.onnx", "-o", "tiny.onnx", *chosen, "--json")
        assert code == 0
        document = json.loads(shown)
        assert [node["op"] for node in document["nodes"] if node["op"] != "Constant"] == ["Softmax"]
        assert document["is_complete"]
        assert call("compare", "tiny.onnx", "--inputs", "tiny.npz", *chosen)[0] == 4


def test_a_command_decides(call: Call, tmp_path: Path) -> None:
    (tmp_path / "judge.py").write_text(
        "import sys, onnx\nsys.exit(9 if any(n.op_type == 'Gelu' for n in onnx.load(sys.argv[1]).graph.node) else 0)\n"
    )
    code, shown, _ = call(
        "reduce", MODELS / "vit_dynamic.onnx", "-o", "tiny.onnx", "--check", f"'{sys.executable}' judge.py"
    )
    assert code == 0
    assert "the command ends with code 9" in shown
    assert [node.op_type for node in onnx.load(tmp_path / "tiny.onnx").graph.node] == ["Gelu"]


def test_a_shell_only_when_asked_for(call: Call) -> None:
    """A shell would see two commands, of which the second one fails."""
    code, _, err = call("reduce", "small.onnx", "--check", f"'{sys.executable}' -c 0 ; false")
    assert code == 1
    assert "the command ends with code 0" in err
    words = ["--check", f"'{sys.executable}' -c 0 ; false", "--shell", "--max-tests", "4"]
    code, shown, _ = call("reduce", "small.onnx", *words)
    assert code == 0
    assert "the trials or the time ran out" in shown
