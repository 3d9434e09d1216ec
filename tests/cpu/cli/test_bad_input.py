"""Bad input of every kind: one message, the right code, no traceback, and no half-written file."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from dovetail.cli import main
from tests.support.cli_models import LIBRARY, write_library, write_model

GOOD = ["--plugins", "layers.py"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Things that are wrong, each in its own way."""
    place = tmp_path_factory.mktemp("bad")
    write_library(place)
    model = write_model(place / "small.onnx")
    write_model(place / "unknown.onnx", op="Frobnicate")
    assert (
        main(["build", str(model), "--plugins", str(place / "layers.py"), "--shapes", "x:1x4:2x4:8x4", "--quiet"]) == 0
    )
    plan = (place / "small.plan").read_bytes()
    (place / "cut.plan").write_bytes(plan[:-5])
    (place / "flipped.plan").write_bytes(plan[:-1] + bytes([plan[-1] ^ 1]))
    (place / "cut.onnx").write_bytes(model.read_bytes()[:60])
    (place / "empty.onnx").write_bytes(b"")
    (place / "empty.plan").write_bytes(b"")
    (place / "text.onnx").write_text("hello\n")
    (place / "raises.py").write_text("raise RuntimeError('boom')\n")
    (place / "exits.py").write_text("import sys; sys.exit(0)\n")
    (place / "syntax.py").write_text("def f(:\n")
    (place / "nothing.py").write_text("x = 1\n")
    (place / "crash.py").write_text(LIBRARY.replace("scale = x.dtype", "1 / 0; scale = x.dtype"))
    (place / "text.npy").write_text("hello\n")
    (place / "text.npz").write_text("hello\n")
    np.save(place / "wrong_type.npy", np.zeros((2, 4), np.float64))
    np.save(place / "wrong_rank.npy", np.zeros(4, np.float32))
    np.save(place / "objects.npy", np.array([{}], object), allow_pickle=True)
    np.savez(place / "many.npz", a=np.zeros(1))
    huge = bytearray((place / "wrong_rank.npy").read_bytes())
    huge[:128] = bytes(huge[:128]).replace(b"(4,), }           ", b"(4000000000000,), }")
    (place / "huge.npy").write_bytes(huge)
    (place / "folder").mkdir()
    return place


CASES = [
    # model
    (["build", "none.onnx"], 2, "there is no such file"),
    (["build", "folder"], 2, "this is a folder"),
    (["build", "empty.onnx"], 2, "ONNX model"),
    (["build", "cut.onnx"], 2, "ONNX model"),
    (["build", "text.onnx"], 2, "ONNX model"),
    (["build", "unknown.onnx", *GOOD], 3, "Frobnicate"),
    (["build", "small.onnx", *GOOD, "--alias", "y"], 1, "expected OUTPUT=INPUT"),
    (["build", "small.onnx", *GOOD, "--alias", "y=x", "--alias", "y=z"], 1, "got 'x' and 'z'"),
    (["build", "small.onnx", *GOOD, "--alias", "y=none"], 1, "the network has no input 'none'"),
    (["run", "text.onnx"], 2, "ONNX model"),
    (["run", "small.onnx", "--seed", "-1", *GOOD], 1, "expected a whole number of at least 0"),
    (["check", "layers.py", "--seed", "-1"], 1, "expected a whole number of at least 0"),
    (["check", "layers.py", "--timeout", "0"], 1, "expected a number above 0"),
    (["check", "layers.py", "--timeout", "nan"], 1, "expected a number above 0"),
    (["build", "small.onnx", *GOOD, "--carry-candidates", "1e30"], 1, "above 0 and below 1e+15, got '1e30'"),
    (["tune", "folder"], 2, "this is a folder; expected a plan"),
    (["tune", "none.plan"], 2, "there is no such file"),
    (["tune", "text.onnx"], 5, "plan"),
    (["tune", "cut.plan"], 5, "damaged"),
    (["tune", "flipped.plan"], 5, "damaged"),
    # plugins
    (["build", "small.onnx"], 3, "fix: name its library with --plugins"),
    (["run", "small.plan"], 2, "fix: name its library with --plugins"),
    (["build", "small.onnx", "--plugins", "none.py"], 2, "there is no such plugin library"),
    (["build", "small.onnx", "--plugins", "raises.py"], 2, "RuntimeError: boom"),
    (["build", "small.onnx", "--plugins", "exits.py"], 2, "SystemExit"),
    (["build", "small.onnx", "--plugins", "syntax.py"], 2, "syntax.py:1"),
    (["build", "small.onnx", "--plugins", "crash.py"], 3, "ZeroDivisionError"),
    (["plugin", "list", "--plugins", "none.py"], 2, "there is no such plugin library"),
    (["check", "layers.py", "--provider", "cpv"], 1, "there is no provider 'cpv'"),
    (["check", "layers.py", "--provider", "cpu"], 1, "provider 'cpu': its memory is the host's"),
    (["check", "none.py"], 1, "there is no such file"),
    (["check", "nothing.py"], 1, "there is no creator"),
    (["check", "raises.py"], 2, "RuntimeError: boom"),
    (["check", "layers.py:Frobnicate"], 1, "is no creator and no plugin class"),
    (["check", "layers.py", "--fields", "beta=1"], 1, "the creator has no field 'beta'"),
    (["check", "layers.py", "--types", "FLOATY"], 1, "unknown type"),
    # shapes
    (["build", "small.onnx", *GOOD, "--shapes", "q:1x4"], 1, "there is no input 'q'; expected x"),
    (["build", "small.onnx", *GOOD, "--shapes", "x:1x4,q:1x4"], 1, "there is no input 'q'; expected x"),
    (["build", "small.onnx", *GOOD, "--shapes", "x:1x5"], 1, "does not fit the input's shape"),
    (["build", "small.onnx", *GOOD, "--shape-values", "x:1"], 1, "fix: add x:min:opt:max"),
    (["run", "small.plan", *GOOD, "--shapes", "q:1x4"], 1, "there is no input 'q'; expected x"),
    (["run", "small.plan", *GOOD, "--shapes", "x:9x4"], 2, "outside profile 0"),
    (["run", "small.plan", *GOOD, "--shapes", "x:1x4x1"], 2, "wrong number of dimensions; expected 2"),
    (["run", "small.onnx", *GOOD, "--shapes", "x:2x5"], 1, "does not fit the input's shape"),
    # inputs
    (["run", "small.plan", *GOOD, "--inputs", "x:none.npy"], 2, "the file cannot be read"),
    (["run", "small.plan", *GOOD, "--inputs", "x:folder"], 2, "the folder has no inputs"),
    (["run", "small.plan", *GOOD, "--inputs", "x:text.npy"], 2, "this is not a .npy file"),
    (["run", "small.plan", *GOOD, "--inputs", "x:objects.npy"], 2, "an array of Python objects"),
    (["run", "small.plan", *GOOD, "--inputs", "x:huge.npy"], 2, "this is not a .npy file"),
    (["run", "small.plan", *GOOD, "--inputs", "x:many.npz"], 2, "this holds several arrays"),
    (["run", "small.plan", *GOOD, "--inputs", "x:wrong_type.npy"], 2, "expected float32, got float64"),
    (["run", "small.plan", *GOOD, "--inputs", "x:wrong_rank.npy"], 2, "wrong number of dimensions"),
    (["run", "small.plan", *GOOD, "--inputs", "q:text.npy"], 1, "this names no input"),
    (["run", "small.plan", *GOOD, "--inputs", "x:wrong_rank.npy", "x:wrong_rank.npy"], 1, "has two values"),
    (["run", "small.plan", *GOOD, "--inputs", "many.npz"], 1, "array 'a' is no input; expected x"),
    (["run", "small.plan", *GOOD, "--inputs", "text.npz"], 2, "this is not a .npz file"),
    (["run", "small.plan", *GOOD, "--inputs", "none.npz"], 2, "the file cannot be read"),
    # plans
    (["run", "none.plan"], 2, "there is no such file"),
    (["run", "empty.plan"], 5, "too short to be a plan"),
    (["run", "cut.plan"], 5, "cut.plan"),
    (["bench", "flipped.plan", *GOOD], 5, "does not match its sha256 digest"),
    (["inspect", "none.plan"], 2, "there is no such file"),
    (["inspect", "cut.plan"], 5, "cut.plan"),
    (["inspect", "text.onnx"], 2, "ONNX model"),
    (["build", "small.plan", "-o", "other.plan"], 2, "this is a plan, which is built already"),
    (["build", "small.plan"], 2, "this is a plan, which is built already"),
    (["compare", "small.plan"], 1, "fix: name what to compare it with: its model, another plan, or saved outputs"),
    (["run", "wrong_rank.npy"], 2, "this is an array of NumPy, and not an ONNX model"),
    (["run", "small.plan", *GOOD, "--inputs", "none.npy"], 2, "'none.npy', for input 'x': the file cannot be read"),
    (["run", "small.plan", *GOOD, "--inputs", "objects.npy"], 2, "an array of Python objects, which are code"),
    # names
    (["bnech"], 1, "did you mean 'bench'?"),
    (["provider", "lits"], 1, "did you mean 'list'? see 'dovetail provider -h'"),
    (["run", "small.plan", "--plugin", "layers.py"], 1, "did you mean '--plugins'? see 'dovetail run -h'"),
    (["run", "small.plan", "--seeed=3"], 1, "did you mean '--seed'?"),
    (["run", "small.plan", "more"], 1, "a word too many: 'more'"),
    (["run", "small.onnx", *GOOD, "--providers", "onnxruntim"], 1, "did you mean 'onnxruntime'?"),
    (["build", "small.onnx", *GOOD, "--layer-provider", "*=cpuu"], 1, "did you mean 'cpu'?"),
    (["build", "small.onnx", *GOOD, "--layer-provider", "proyect=cpu"], 1, "did you mean 'project'?"),
    (["compare", "small.onnx", *GOOD, "--against", "cpu", "--layer-provider", "none*=cpu"], 1, "'none*'"),
    (["run", "small.onnx", *GOOD, "--override", "MatMull"], 1, "did you mean 'MatMul'?"),
    (["run", "small.onnx", *GOOD, "--provider-option", "cpuu.layout=NHWC"], 1, "did you mean 'cpu'?"),
    (["run", "small.onnx", *GOOD, "--off", "gelo"], 1, "did you mean 'gelu'?"),
    (["reduce", "small.onnx", *GOOD, "--layer-provider", "proyect=cpu"], 1, "did you mean 'project'?"),
    (["inspect", "folder"], 2, "this is a folder; expected a plan or an ONNX model"),
    (["plan", "check", "none.plan"], 5, "plan cannot be read"),
    # output
    (["build", "small.onnx", *GOOD, "-o", "none/a.plan"], 1, "there is no such folder"),
    (["build", "small.onnx", *GOOD, "-o", "folder"], 1, "this is a folder"),
    (["build", "small.onnx", *GOOD, "-o", "small.onnx"], 1, "the plan would overwrite the model"),
    (["run", "small.plan", *GOOD, "--save-outputs", "layers.py/x"], 1, "cannot be written"),
    (["bench", "small.plan", *GOOD, "--iterations", "1", "--export-times", "folder"], 1, "cannot be written"),
    (["build", "small.onnx", *GOOD, "--timing-cache", "folder"], 4, "it is not a regular file"),
    (["build", "small.onnx", *GOOD, "--error-on-timing-cache-miss"], 4, "not in the timing cache"),
]


@pytest.mark.parametrize(("words", "code", "text"), CASES, ids=[" ".join(case[0]) for case in CASES])
def test_one_message_and_a_code(
    words: list[str],
    code: int,
    text: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    before = _files(folder)
    assert main(words) == code
    shown = capsys.readouterr()
    assert text in shown.err
    errors = [line for line in shown.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert "Traceback" not in shown.err
    assert "internal error" not in shown.err
    assert shown.out == ""
    assert _files(folder) == before


def _files(folder: Path) -> list[str]:
    """All but the locks, which stay for the next process."""
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_damage_is_shown_by_inspect(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert main(["inspect", "flipped.plan"]) == 5
    assert "DAMAGED: partition:sum" in capsys.readouterr().out
    assert main(["plan", "check", "flipped.plan"]) == 5
    assert capsys.readouterr().out.startswith("rebuild\n  because: the file is damaged: partition:sum\n")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_no_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    for words in (["inspect"], ["plan", "check"], ["run"], ["build"]):
        assert main([*words, str(tmp_path / "pipe")]) in (2, 5)
        assert capsys.readouterr().err.startswith("error: ")


def test_outputs_stay_in_their_folder(tmp_path: Path) -> None:
    from dovetail.cli.commands.run import _save

    names = ["../../up", "/etc/passwd", "a/b", "a_b", ".hidden", "", "x" * 300]
    files = _save({name: np.zeros(1) for name in names}, str(tmp_path / "out"))
    written = {Path(path) for path in files.values()}
    assert len(written) == len(names)
    assert all(path.parent == tmp_path / "out" and path.is_file() for path in written)
