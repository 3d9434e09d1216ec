"""``dovetail migrate``: files, answers and exit codes."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from dovetail.cli.answers import show_answer
from dovetail.errors import InputError
from dovetail_tensorrt.migrate import command
from tests.tensorrt.v2_files import FOLDER


def call(*words: str) -> Any:
    parser = argparse.ArgumentParser()
    command.declare(parser)
    args = parser.parse_args(list(words))
    return args.run(args)


def test_the_new_file_lies_beside_the_old_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = Path(shutil.copy(FOLDER / "table_lookup.py", tmp_path))
    answer = call(str(source))
    assert answer.exit_code == 0
    assert "class TablePlugin(trt.IPluginV3, " in (tmp_path / "table_lookup_v3.py").read_text()
    show_answer(answer, as_json=False)
    text = capsys.readouterr().out
    assert text.startswith(f"wrote {tmp_path}/table_lookup_v3.py: TablePlugin, TableCreator\n")
    line = source.read_text().splitlines().index("    def clone(self):") + 1
    assert f"{source}:{line}: clone calls initialize on the twin\n" in text


def test_the_place_can_be_chosen_and_the_answer_is_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "sub" / "new.py"
    show_answer(call(str(FOLDER / "circ_pad.py"), "-o", str(target)), as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["output"] == str(target)
    assert document["plugins"] == ["CircPadPlugin"]
    assert document["notes"] == []
    assert target.exists()


def test_a_diff_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = Path(shutil.copy(FOLDER / "clip_v2.py", tmp_path))
    show_answer(call(str(source), "--diff"), as_json=False)
    assert "-class ClipPlugin(trt.IPluginV2):\n" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [source]


def test_files_that_are_not_there_or_no_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        call(str(tmp_path / "none.py"))
    (tmp_path / "odd.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="the file is no UTF-8 text"):
        call(str(tmp_path / "odd.py"))
