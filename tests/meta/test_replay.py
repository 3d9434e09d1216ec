"""The build replay: deterministic text, and every planted change is visible."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.replays import ROOT, replay

sys.path.insert(0, str(ROOT / "tools"))
from replay.compare import compare_folders
from replay.trees import describe_revision, open_worktree, run_worker

LARGER_ARENA = """
import dovetail.provider.memory.arena as module
original = module.plan_offsets
def plan_offsets(spans):
    offsets, size = original(spans)
    return [offset + 256 for offset in offsets], size + 256
module.plan_offsets = plan_offsets
"""
OTHER_MESSAGE = """
import dovetail.errors as module
original = module.DovetailError.__str__
module.DovetailError.__str__ = lambda self: original(self).upper()
"""


@pytest.mark.slow
def test_text_does_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    runs = [replay(tmp_path / seed, "--suite=cpu", "--quick", seed=seed) for seed in ("0", "12345")]
    assert len(runs[0]) == 10
    assert runs[0] == runs[1]


@pytest.mark.parametrize(("plant", "case"), [(LARGER_ARENA, "profiles_two_refit"), (OTHER_MESSAGE, "error_unknown_op")])
def test_planted_change_is_visible(tmp_path: Path, plant: str, case: str) -> None:
    options = ("--suite=cpu", f"--only={case}")
    before, after = replay(tmp_path / "a", *options), replay(tmp_path / "b", *options, plant=plant)
    assert before.keys() == after.keys() == {f"cpu/{case}.txt"}
    assert before != after


def test_unknown_case_name_fails() -> None:
    with pytest.raises(SystemExit):
        run_worker(ROOT, ROOT / "build" / "replay" / "unknown", ["--suite=cpu", "--only=no such case"])


def test_comparison_names_every_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder, files in (
        ("a", {"same": "1\n", "old": "2\n", "edited": "3\n"}),
        ("b", {"same": "1\n", "edited": "4\n"}),
    ):
        (tmp_path / folder).mkdir()
        for name, text in files.items():
            (tmp_path / folder / name).write_text(text)
    assert compare_folders(tmp_path / "a", tmp_path / "a", max_lines=9) == 0
    assert compare_folders(tmp_path / "a", tmp_path / "b", max_lines=3) == 1
    output = capsys.readouterr().out
    assert "changed: edited\nremoved: old\n" in output
    assert "2 of 3 files differ" in output
    assert "-3\n+4\n" in (tmp_path / "a-to-b.diff").read_text()


def test_base_revision_is_built_from_its_own_sources(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("the sources are not in a git checkout")
    with open_worktree(ROOT, "HEAD", tmp_path) as (tree, revision):
        assert describe_revision(ROOT).startswith(revision)
        source = tree / "packages/dovetail/src/dovetail/errors.py"
        source.write_text(source.read_text() + "\nDovetailError.__str__ = lambda self: 'from the worktree'\n")
        run_worker(tree, tmp_path / "out", ["--suite=cpu", "--only=error_io_memory"])
    assert "from the worktree" in (tmp_path / "out/cpu/error_io_memory.txt").read_text()
    listed = subprocess.run(["git", "-C", str(ROOT), "worktree", "list"], capture_output=True, text=True, check=True)
    assert str(tmp_path) not in listed.stdout


def test_unknown_base_revision_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(SystemExit, match="no revision 'no-such-revision'"),
        open_worktree(ROOT, "no-such-revision", tmp_path),
    ):
        pass
