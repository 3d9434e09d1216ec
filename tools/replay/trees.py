"""Source trees: the current one and worktrees of other revisions, and the process that replays one of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = ["describe_revision", "open_worktree", "run_worker"]

TOOLS = Path(__file__).resolve().parents[1]


def _git(tree: Path, *arguments: str) -> str:
    command = ["git", "-C", str(tree), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def describe_revision(tree: Path) -> str:
    """Return the short commit id of a tree, with the suffix ``-dirty`` if files have changed."""
    is_dirty = bool(_git(tree, "status", "--porcelain"))
    return _git(tree, "rev-parse", "--short=12", "HEAD") + "-dirty" * is_dirty


@contextmanager
def open_worktree(tree: Path, revision: str, folder: Path) -> Iterator[tuple[Path, str]]:
    """Check out a revision next to the output and remove it at the end.

    Args:
        tree: Root of a checkout of the repository.
        revision: Revision to check out.
        folder: Folder that gets the worktree.

    Yields:
        The root of the worktree, and the short commit id.

    Raises:
        SystemExit: If the revision does not exist.
    """
    try:
        commit = _git(tree, "rev-parse", "--short=12", "--verify", f"{revision}^{{commit}}")
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"replay: there is no revision {revision!r}: {error.stderr.strip()}") from None
    path = folder.resolve() / f"worktree-{commit}-{os.getpid()}"
    path.parent.mkdir(parents=True, exist_ok=True)
    _git(tree, "worktree", "add", "--quiet", "--detach", str(path), commit)
    try:
        yield path, commit
    finally:
        _git(tree, "worktree", "remove", "--force", str(path))


def run_worker(tree: Path, out: Path, options: Sequence[str]) -> None:
    """Replay the cases of this tool with the packages and the test helpers of a tree.

    Args:
        tree: Root of the tree to replay.
        out: Folder for the text of the cases.
        options: Options of `replay.worker`.

    Raises:
        SystemExit: If the worker fails.
    """
    paths = [str(tree), *(str(path) for path in sorted(tree.glob("packages/*/src"))), str(TOOLS)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "replay.worker", str(out.resolve()), *options]
    if subprocess.run(command, cwd=tree, env=env, check=False).returncode:
        raise SystemExit(f"replay: the cases cannot be built with {tree}")
