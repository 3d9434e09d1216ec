"""What commands run on when nobody brings arrays: a size that nobody set is told once, or refused with --strict."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from dovetail.cli import main
from dovetail.provider.loader import get_default_options, set_default_options
from tests.support.cli_models import write_library, write_model

Call = Callable[..., tuple[int, str, str]]
FAST = ("--iterations", "3", "--warmup-ms", "0")
COMMANDS = [("run",), ("bench", *FAST), ("compare",), ("reduce", "--mode", "compare")]
"""Everything that makes inputs up."""

TWO = """
    <ir_version: 10, opset_import: ["" : 21]>
    two (float[batch, 3, width] x, float[batch] y, float[2] z) => (float[batch, 3, width] r, float[2] s)
    { r = Neg(x)  q = Neg(y)  s = Neg(z) }
"""


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Call]:
    monkeypatch.chdir(tmp_path)
    options = get_default_options("onnxruntime")
    onnx.save(onnx.parser.parse_model(TWO), tmp_path / "two.onnx")
    np.save(tmp_path / "x.npy", np.zeros((2, 3, 5), np.float32))

    def run(*words: object) -> tuple[int, str, str]:
        code = main([str(word) for word in words])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    yield run
    set_default_options("onnxruntime", options)  # commands set them for the process


def warnings_of(err: str) -> list[str]:
    return [line for line in err.splitlines() if line.startswith("warning: ")]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_each_size_that_nobody_set_is_told_once(call: Call, words: tuple[str, ...]) -> None:
    name, *options = words
    _, _, err = call(name, "two.onnx", *options)
    told = warnings_of(err)
    assert len(told) == 2
    for line, (tensor, dim) in zip(told, [("x", "batch"), ("x", "width")], strict=True):
        assert f"input '{tensor}'" in line
        assert f"'{dim}'" in line
        assert "1 is taken" in line
    assert "--shapes x:1x3x1" in told[0]


@pytest.mark.parametrize("words", COMMANDS[:3], ids=lambda words: words[0])
def test_the_document_has_them(call: Call, words: tuple[str, ...]) -> None:
    name, *options = words
    code, shown, _ = call(name, "two.onnx", *options, "--json")
    assert code == 0
    unset = json.loads(shown)["unset"]
    assert [(dim["input"], dim["axis"], dim["name"], dim["size"]) for dim in unset] == [
        ("x", 0, "batch", 1),
        ("x", 2, "width", 1),
    ]
    assert unset[0]["set_with"] == "--shapes x:1x3x1"


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_strict_takes_no_size_that_nobody_set(call: Call, words: tuple[str, ...]) -> None:
    name, *options = words
    code, _, err = call(name, "two.onnx", *options, "--strict")
    assert code == 2
    assert "input 'x'" in err
    assert "nobody set dimension 0 ('batch')" in err
    assert "fix: set it with --shapes x:1x3x1" in err


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
@pytest.mark.parametrize(
    "given",
    [
        ("--shapes", "x:1x3x1,y:1"),
        ("--shapes", "x:1x3x1"),
        ("--inputs", "x:x.npy"),
        ("--shapes", "x:1x3x4:2x3x8:4x3x8,y:1:2:4"),
    ],
)
def test_what_somebody_set_is_not_told(call: Call, words: tuple[str, ...], given: tuple[str, ...]) -> None:
    name, *options = words
    code, _, err = call(name, "two.onnx", *options, *given)
    assert code == (1 if name == "reduce" else 0)  # there is nothing to reduce
    assert warnings_of(err) == []


def test_a_plan_says_so_too_unless_its_profile_decides(call: Call) -> None:
    assert call("build", "two.onnx", "-o", "open.plan", "--quiet")[0] == 0
    assert call("build", "two.onnx", "-o", "bound.plan", "--quiet", "--shapes", "x:1x3x4:2x3x8:4x3x8,y:1:2:4")[0] == 0
    code, _, err = call("run", "open.plan")
    assert code == 0
    assert len(warnings_of(err)) == 2
    assert call("run", "open.plan", "--strict")[0] == 2
    for strict in ((), ("--strict",)):
        code, shown, err = call("run", "bound.plan", "--json", *strict)
        assert (code, err) == (0, "")
        assert json.loads(shown)["unset"] == []


def test_a_model_whose_tuning_needs_the_size_tells_it_once(call: Call, tmp_path: Path) -> None:
    write_library(tmp_path)
    write_model(tmp_path / "small.onnx")
    for words in (("run",), ("bench", *FAST), ("compare", "--against", "cpu", "--layers")):
        name, *options = words
        code, _, err = call(name, "small.onnx", *options, "--plugins", "layers.py")
        assert code == 0
        (line,) = warnings_of(err)
        assert "input 'x'" in line
        assert "('n'), so 1 is taken" in line


def test_a_build_tells_with_which_size_tactics_were_timed(call: Call, tmp_path: Path) -> None:
    write_library(tmp_path)
    write_model(tmp_path / "small.onnx")
    words = ("build", "small.onnx", "--plugins", "layers.py", "-o", "a.plan")
    code, shown, err = call(*words, "--json")
    assert code == 0
    (line,) = warnings_of(err)
    assert "--shapes x:1x4" in line
    assert json.loads(shown)["warnings"] == [line.removeprefix("warning: ")]
    code, _, err = call(*words, "--strict")
    assert code == 2
    assert "nobody set dimension 0 ('n')" in err
    for given in (("--shapes", "x:1x4:2x4:8x4"), ("--shapes", "x:3x4", "--strict")):
        code, _, err = call(*words, *given)
        assert (code, warnings_of(err)) == (0, [])
    assert warnings_of(call("build", "two.onnx", "-o", "b.plan")[2]) == []  # nothing is timed, so nothing is taken


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("run", "--provider-option", "onnxruntime.threads=1"), 1),
        (("bench", *FAST, "--threads", "1"), 1),
        (("run", "--provider-option", "onnxruntime.threads=1", "--providers", "onnxruntime"), 0),
    ],
)
def test_options_of_a_provider_that_runs_nothing_are_told(call: Call, words: tuple[str, ...], told: int) -> None:
    name, *options = words
    chosen = [] if "--providers" in options else ["--providers", "cpu"]
    code, _, err = call(name, "two.onnx", "--shapes", "x:1x3x1,y:1", *options, *chosen)
    assert code == 0
    assert len(warnings_of(err)) == told
    assert err.count("onnxruntime.threads=1 has no effect") == told
    assert call(name, "two.onnx", "--shapes", "x:1x3x1,y:1", *options, *chosen, "--strict")[0] == told


def test_contents_that_decide_shapes_are_told(call: Call, tmp_path: Path) -> None:
    text = """
        <ir_version: 10, opset_import: ["" : 21]>
        fill (int64[2] size) => (float[a, b] y) { y = ConstantOfShape <value = float[1] {2}> (size) }
    """
    onnx.save(onnx.parser.parse_model(text), tmp_path / "fill.onnx")
    _, _, err = call("run", "fill.onnx")
    (line,) = warnings_of(err)
    assert "input 'size'" in line
    assert "--inputs size:FILE.npy" in line
    np.save(tmp_path / "size.npy", np.array([2, 3]))
    assert warnings_of(call("run", "fill.onnx", "--inputs", "size:size.npy")[2]) == []
