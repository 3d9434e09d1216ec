"""Every way to fail gives one message and the documented code, and never a traceback."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail import cli, errors
from dovetail.cli import failures, main
from dovetail.errors import DovetailError

ROOT = Path(__file__).resolve().parents[3]
USAGE_LINES = [
    [],
    ["frobnicate"],
    ["run"],
    ["run", "--frobnicate"],
    ["build"],
    ["build", "a.onnx", "--verbose", "--quiet"],
    ["build", "a.onnx", "--tactic-timeout", "soon"],
    ["build", "a.onnx", "--tactic-timeout", "0"],
    ["build", "a.onnx", "--workspace", "nan"],
    ["build", "a.onnx", "--shapes", "x"],
    ["build", "a.onnx", "--profile", "x:1:2"],
    ["bench", "a.plan", "--iterations", "0"],
    ["bench", "a.plan", "--iterations", "9" * 5000],
    ["bench", "a.plan", "--duration", "-1"],
    ["run", "a.plan", "--seed", "x"],
    ["run", "a.plan", "--shapes", "x:?"],
    ["check", "a.py", "--fields", "alpha"],
    ["check", "a.py", "--fields", "a=1", "a=2"],
    ["check", "a.py", "--shapes", "x:y"],
    ["provider"],
    ["provider", "frobnicate"],
    ["plan", "check"],
    ["env", "more"],
]


def _fail(monkeypatch: pytest.MonkeyPatch, error: BaseException, *words: str) -> int:
    def command(args: object) -> None:
        raise error

    arguments = SimpleNamespace(json="--json" in words, run=command)
    monkeypatch.setattr(cli, "make_parser", lambda _: SimpleNamespace(parse_args=lambda _: arguments))
    return main(list(words))


@pytest.mark.parametrize("words", USAGE_LINES, ids=lambda words: " ".join(words)[:60])
def test_usage_errors(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert "Traceback" not in shown.err
    assert len(shown.err) < 1500


def _error_classes() -> list[type[DovetailError]]:
    return [getattr(errors, name) for name in errors.__all__]


@pytest.mark.parametrize("kind", _error_classes(), ids=lambda kind: kind.__name__)
def test_each_error_has_its_code(
    kind: type[DovetailError], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _fail(monkeypatch, kind("it is broken", where="here", fix="mend it")) == kind.exit_code
    assert capsys.readouterr().err == "error: here: it is broken\n  fix: mend it\n"


def test_json_has_the_error_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert _fail(monkeypatch, errors.InputError("no", got=(1, 2), fix="yes"), "--json") == 2
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    assert document["exit_code"] == 2
    assert document["error"] == {
        "kind": "InputError",
        "message": "no; got (1, 2)\n  fix: yes",
        "what": "no",
        "where": None,
        "expected": None,
        "got": "(1, 2)",
        "fix": "yes",
    }
    assert shown.err.startswith("error: no")


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError(), 6, "error: memory ran out"),
        (FileNotFoundError(2, "No such file or directory", "a.txt"), 2, "error: a.txt: No such file or directory"),
        (ModuleNotFoundError("no", name="onnx_ir.passes"), 6, "fix: pip install 'dovetail-engine[build]'"),
        (ModuleNotFoundError("no", name="numpy"), 6, "fix: pip install dovetail-engine\n"),
        (ZeroDivisionError("division by zero\nsecond line"), 70, "error: internal error: ZeroDivisionError"),
        (
            ModuleNotFoundError("no", name="dovetail.nothing"),
            70,
            "report (set DOVETAIL_TRACEBACK=1 to see where)",
        ),
        (SystemExit(0), 70, "internal error: SystemExit"),
        (RecursionError("deep"), 70, "internal error: RecursionError"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_other_exceptions(
    error: BaseException, code: int, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(failures.TRACEBACK_VARIABLE, raising=False)
    assert _fail(monkeypatch, error) == code
    shown = capsys.readouterr().err
    assert text in shown
    assert "Traceback" not in shown
    assert "second line" not in shown


def test_the_variable_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(failures.TRACEBACK_VARIABLE, "1")
    assert _fail(monkeypatch, ZeroDivisionError("x")) == 70
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_control_characters_do_not_reach_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _fail(monkeypatch, errors.ModelError("bad\x1b[2Jname\r\x07"))
    assert capsys.readouterr().err == "error: bad\\x1b[2Jname\\r\\x07\n"


def test_the_page_has_every_code() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    table = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    used = {kind.exit_code for kind in _error_classes()} | {0, failures.EXIT_INTERRUPTED, failures.EXIT_PIPE}
    assert table == used


def test_every_extra_is_known() -> None:
    import tomllib

    from dovetail._extras import PACKAGES

    project = tomllib.loads((ROOT / "packages/dovetail/pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {"": project["dependencies"], **project["optional-dependencies"]}
    del declared["all"]
    names = {extra: tuple(re.split(r"[<>=\[]", line)[0] for line in lines) for extra, lines in declared.items()}
    assert names == PACKAGES


def test_a_broken_installation_can_still_be_described() -> None:
    code = "import sys; sys.modules['numpy'] = None; from dovetail.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", code, "env"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([sys.executable, "-c", code, "provider", "list"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[1]) == (6, "  fix: pip install dovetail-engine")


def test_a_closed_pipe_is_no_traceback() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "dovetail", "provider", "list"], stdout=write, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(write)
    assert done.returncode == failures.EXIT_PIPE
    assert done.stderr == b""


def test_a_name_that_the_terminal_cannot_show(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-m", "dovetail", "inspect", str(tmp_path / "größe.plan")],
        env=environment,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2
    assert b"gr\\xf6\\xdfe.plan': there is no such file" in done.stderr


@given(st.lists(st.text(max_size=20), max_size=4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_words_give_a_code(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    for command in (["run"], ["inspect"], ["plan", "check"], ["frobnicate"], []):
        code = main([*command, *words])
        shown = capsys.readouterr()
        assert code in (0, 1, 2, 5), (words, shown.err)
        assert "Traceback" not in shown.err
