"""``dovetail migrate`` and ``dovetail lint`` as the command line finds them: by the entry points of their package."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from dovetail.cli import main
from tests.support.distributions import install
from tests.tensorrt.v2_files import FOLDER

COMMANDS = {"migrate": "dovetail_tensorrt.migrate.command", "lint": "dovetail_tensorrt.lint.command"}


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands, offered once whether or not the package itself is installed."""
    from importlib.metadata import entry_points

    offered = {point.name for point in entry_points(group="dovetail.commands")}
    missing = {name: target for name, target in COMMANDS.items() if name not in offered}
    if missing:
        install(tmp_path / "site", "dovetail-tensorrt-commands", {"dovetail.commands": missing})
        monkeypatch.syspath_prepend(str(tmp_path / "site"))


def test_a_file_is_judged_migrated_and_judged_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = Path(shutil.copy(FOLDER / "circ_pad.py", tmp_path))
    assert main(["lint", str(source), "--json"]) == 2
    assert {finding["rule"] for finding in json.loads(capsys.readouterr().out)["findings"]} == {"L11"}
    assert main(["migrate", str(source)]) == 0
    assert "next: dovetail check" in capsys.readouterr().out
    assert main(["lint", str(tmp_path / "circ_pad_v3.py")]) == 0
    assert "no finding(s) in 1 file(s)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["migrate", "none.py"], 2, "there is no such file"),
        (["migrate"], 1, "the following arguments are required"),
        (["lint"], 1, "there is nothing to judge"),
        (["lint", "none"], 2, "there is no such file or folder"),
        (["lint", ".", "--ignore", "L1"], 1, "there is no rule 'L1'"),
    ],
)
def test_failures_are_one_message_and_a_code(
    words: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == code
    assert message in capsys.readouterr().err
