"""The start of a plugin keeps the contract, and shells complete commands, options and files."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.cli import main
from dovetail.cli.commands.completion import SHELLS
from dovetail.cli.starters import FORMS

Shown = pytest.CaptureFixture[str]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "form"), [("acme::ScaledRelu", "layer"), ("Select", "class")])
def test_a_new_plugin_passes_its_own_test(tmp_path: Path, capsys: Shown, name: str, form: str) -> None:
    assert main(["plugin", "new", name, "--form", form, "-o", str(tmp_path), "--json"]) == 0
    library, test = json.loads(capsys.readouterr().out)["files"]
    assert len(Path(library).read_text(encoding="utf-8").splitlines()) < 80
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), test]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


@pytest.mark.parametrize("form", FORMS)
def test_what_it_writes_is_python_of_any_name(tmp_path: Path, form: str) -> None:
    for name in ("A", "HTTPServer2", "my_op", "x.y::Lambda", "Select", "Numpy"):
        assert main(["plugin", "new", name, "--form", form, "-o", str(tmp_path)]) == 0
    written = sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("test_"))
    assert written == ["a.py", "http_server2.py", "lambda_.py", "my_op.py", "numpy_.py", "select_.py"]
    for path in tmp_path.iterdir():
        compile(path.read_text(encoding="utf-8"), str(path), "exec")


def test_nothing_is_replaced_and_names_are_names(tmp_path: Path, capsys: Shown) -> None:
    assert main(["plugin", "new", "MyOp", "-o", str(tmp_path)]) == 0
    assert main(["plugin", "new", "MyOp", "-o", str(tmp_path)]) == 1
    assert "the file is there already" in capsys.readouterr().err
    for name in ("a b", "../up", "1x", "a::b::c", "", 'x"; import os'):
        assert main(["plugin", "new", name, "-o", str(tmp_path)]) == 1
        assert "this is no name for an operator" in capsys.readouterr().err


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completion")
    for shell in SHELLS:
        done = subprocess.run([sys.executable, "-m", "dovetail", "completion", shell], capture_output=True, check=True)
        (folder / shell).write_bytes(done.stdout)
    return folder


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_reads_the_script(scripts: Path, shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([program, "-n", scripts / shell], check=True, capture_output=True)


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["insp"], {"inspect"}),
        (["run", "--save"], {"--save-outputs", "--save-inputs"}),
        (["plugin", ""], {"list", "new"}),
        (["compare", "--against", ""], {"onnxruntime", "reference", "cpu"}),
        (["completion", ""], set(SHELLS)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bash_completes(scripts: Path, words: list[str], expected: set[str]) -> None:
    line = " ".join(f"'{word}'" for word in words)
    script = (
        f"source '{scripts / 'bash'}'; COMP_WORDS=(dovetail {line}); COMP_CWORD={len(words)}; "
        '_shtab_dovetail; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert {word.strip() for word in done.stdout.splitlines()} == expected
