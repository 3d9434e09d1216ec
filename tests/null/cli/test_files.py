"""Files that a command writes: never those it reads, and each place once."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.cli.files import keep_apart
from dovetail.errors import UsageError


def test_what_is_read_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.npy").touch()
    Path("link.npy").symlink_to("a.npy")
    for given in ("a.npy", "./a.npy", "x:a.npy", str(tmp_path / "a.npy"), "link.npy"):
        with pytest.raises(UsageError, match=r"--save-inputs: 'a\.npy' would be written over, and it is read"):
            keep_apart({"--save-inputs": "a.npy"}, [given])
    keep_apart({"--save-inputs": "b.npy", "--save-outputs": None}, ["a.npy", "x=[1,2]", "x:uniform(0,1)", "\0"])


def test_two_things_do_not_go_to_one_file() -> None:
    with pytest.raises(UsageError, match=r"--export-times: 'a\.json' is named by --trace too"):
        keep_apart({"--trace": "./a.json", "--export-times": "a.json"}, [])
    keep_apart({"--trace": "/dev/null", "--export-times": "/dev/null"}, [])
