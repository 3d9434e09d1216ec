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
        words += ["--shapes", "pixel_values:1x3x32x32"]
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


# results that have nothing to compare


def write_root(path: Path, x: Any, dims: str = "n") -> list[str]:
    """Write ``y = sqrt(x)``, ``z = -x``, and an input; the words of a command that compares them come back."""
    text = f"""
        <ir_version: 10, opset_import: ["" : 21]>
        root (float[{dims}] x) => (float[{dims}] y, float[{dims}] z) {{ [root] y = Sqrt(x)  [minus] z = Neg(x) }}
    """
    onnx.save(onnx.parser.parse_model(text), path / "root.onnx")
    np.savez(path / "root.npz", x=np.array(x, np.float32))
    return ["compare", "root.onnx", "--inputs", "root.npz"]


def output_row(shown: str, name: str) -> str:
    return next(line for line in shown.splitlines() if line.split()[1:2] == [name])


def test_all_nan_verifies_nothing(call: Call, tmp_path: Path) -> None:
    words = write_root(tmp_path, [-1, -2, -3])
    code, shown, _ = call(*words)
    assert code == 4
    row = output_row(shown, "y")
    assert row.startswith("FAIL")
    assert "1.000000" not in row
    assert "nothing was compared" in shown
    assert "3 NaN" in shown
    assert shown.splitlines()[-1].startswith("NOT VERIFIED: 1 of 2 outputs")
    assert "--allow-nan" in shown.splitlines()[-1]
    code, shown, _ = call(*words, "--json")
    document = json.loads(shown)
    assert (code, document["is_close"]) == (4, False)
    y, z = document["outputs"]
    assert (y["is_close"], y["is_verified"], y["cosine"], y["max_abs"]) == (False, False, None, None)
    assert (y["num_nan"], y["num_compared"], y["size"]) == ([3, 3], 0, 3)
    assert (z["is_close"], z["is_verified"], z["num_compared"]) == (True, True, 3)


def test_all_nan_passes_when_it_is_allowed_and_is_still_told(call: Call, tmp_path: Path) -> None:
    code, shown, _ = call(*write_root(tmp_path, [-1, -2, -3]), "--allow-nan")
    assert code == 0
    row = output_row(shown, "y")
    assert row.startswith("pass")
    assert "1.000000" not in row
    assert "nothing was compared" in shown
    assert "1 of them with nothing to compare" in shown.splitlines()[-1]


def test_nan_on_both_sides_is_counted_and_told(call: Call, tmp_path: Path) -> None:
    words = write_root(tmp_path, [4, -1, np.inf, 9])
    code, shown, _ = call(*words)
    assert code == 0
    assert "'y': 1 NaN and 1 infinite of 4 elements; 2 compared" in shown
    code, shown, _ = call(*words, "--json")
    y, z = json.loads(shown)["outputs"]
    assert (code, y["num_nan"], y["num_inf"], y["num_compared"]) == (0, [1, 1], [1, 1], 2)
    assert y["cosine"] == pytest.approx(1)
    assert "1 NaN" in y["note"]
    assert (z["num_nan"], z["num_inf"]) == ([0, 0], [1, 1])


@pytest.mark.parametrize(
    ("wrong", "counted"),
    [
        (np.float32(np.nan), "NaN 4 here and 0 there"),
        (np.float32(-np.inf), "infinity 4 here and 4 there"),
    ],
)
def test_nan_on_one_side_and_the_other_infinity_differ(
    call: Call, tmp_path: Path, wrong: np.float32, counted: str
) -> None:
    words = write_root(tmp_path, np.full(4, np.inf))
    with broken_provider({"Sqrt": lambda x: np.full_like(x, wrong)}) as providers:
        for more in ([], ["--allow-nan"]):
            code, shown, _ = call(*words, "--providers", ",".join(providers), *more)
            assert code == 4
            assert "4 of 4 elements differ" in shown
            assert counted in shown


def test_empty_outputs_are_told(call: Call, tmp_path: Path) -> None:
    words = write_root(tmp_path, np.zeros((0, 3)), "n, 3")
    code, shown, _ = call(*words)
    assert code == 0
    assert "'y': empty, nothing compared" in shown
    assert "2 of them with nothing to compare" in shown.splitlines()[-1]
    y = json.loads(call(*words, "--json")[1])["outputs"][0]
    assert (y["cosine"], y["note"], y["num_compared"]) == (None, "empty, nothing compared", 0)


def test_layers_without_a_number_are_named_and_diverge_no_more_than_others(call: Call, tmp_path: Path) -> None:
    code, shown, _ = call(*write_root(tmp_path, [-1, -2, -3]), "--layers")
    assert code == 4
    assert "of which 0 differ" in shown
    assert "First to diverge" not in shown
    assert "note: 1 of 2 layers has no finite element to compare, first 'root' (Sqrt)" in shown


def test_what_is_nan_on_both_sides_is_nothing_to_reduce(call: Call, tmp_path: Path) -> None:
    _, *words = write_root(tmp_path, [-1, -2, -3])
    code, _, err = call("reduce", *words)
    assert code == 1
    assert "the model does not fail" in err
    assert "output 'y'" in err
    assert "nothing was compared" in err


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["compare", "none.onnx"], 2, "there is no such file"),
        (["compare", "layers.py"], 2, "ONNX model"),
        (["compare", "small.onnx", "--against", "torch"], 1, "none of the choices"),
        (["compare", "small.onnx", "--atol", "-1"], 1, "at least 0"),
        (["compare", "small.onnx", "--plugins", "layers.py", "--inputs", "none.npz"], 2, "cannot be read"),
        (["compare", "small.onnx", "--plugins", "layers.py", "--shapes", "q:1x4"], 1, "there is no input 'q'"),
        (["reduce", "none.onnx"], 2, "there is no such file"),
        (["reduce", "small.onnx", "-o", "small.onnx"], 1, "would overwrite the model"),
        (["reduce", "small.onnx", "--check", "'"], 1, "the command cannot be read"),
        (["reduce", "small.onnx", "--check", " "], 1, "the command is empty"),
        (["reduce", "small.onnx", "--check", "no-such-program"], 1, "the command cannot be run"),
        (["reduce", "small.onnx", "--mode", "crash", "--check", "x"], 1, "not allowed with"),
        (["reduce", "small.onnx", "--shell"], 1, "--shell means nothing without --check"),
        (["reduce", "small.onnx", "--check-timeout", "3"], 1, "--check-timeout means nothing without --check"),
        (["reduce", "small.onnx", "--check", "x", "--atol", "1"], 1, "--atol means nothing without a comparison"),
        (["reduce", "small.onnx", "--mode", "crash", "--rtol", "1"], 1, "--rtol means nothing without a comparison"),
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
