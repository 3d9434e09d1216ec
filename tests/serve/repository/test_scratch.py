"""The folder of a server: it goes with the server, or with the next one."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dovetail_serve.repository.scratch import ScratchFolder

KILLED = """
import os
from dovetail_serve.repository.scratch import ScratchFolder

scratch = ScratchFolder()
(scratch.path / "model.plan").write_bytes(b"plan")
os.kill(os.getpid(), 9)
"""


@pytest.fixture(autouse=True)
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_it_is_removed_with_all_that_is_in_it(parent: Path) -> None:
    scratch = ScratchFolder()
    (scratch.path / "model.plan").write_bytes(b"plan")
    scratch.remove()
    assert list(parent.iterdir()) == []


def test_what_a_killed_server_has_left_is_removed_by_the_next(parent: Path) -> None:
    living = ScratchFolder()
    subprocess.run([sys.executable, "-c", KILLED], env={"TMPDIR": str(parent)}, check=False)
    others = [parent / "dovetail-serve-of-somebody", parent / "dovetail-serve.txt"]
    others[0].mkdir()
    others[1].write_text("")
    assert len(list(parent.iterdir())) == 4
    scratch = ScratchFolder()
    assert sorted(parent.iterdir()) == sorted([living.path, scratch.path, *others])
    living.remove()
    scratch.remove()
