"""Command line of the build replay."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from replay.compare import compare_folders
from replay.trees import describe_revision, open_worktree, run_worker

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Write the replay of the current tree, and compare it with that of a base revision.

    Returns:
        0 if there is no base or no difference, 1 if there are differences.
    """
    parser = argparse.ArgumentParser(prog="make replay", description="Compare what two revisions build.")
    parser.add_argument("--base", metavar="REV", help="revision to compare with")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "replay", help="output folder")
    parser.add_argument("--suite", action="append", choices=("cpu", "cuda"), help="suite of cases; default: both")
    parser.add_argument("--quick", action="store_true", help="only the subset for a check before a commit")
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases whose name contains TEXT")
    parser.add_argument("--lines", type=int, default=60, help="number of lines of the difference to print")
    args = parser.parse_args()
    options = [*(f"--suite={suite}" for suite in args.suite or ("cpu", "cuda")), f"--only={args.only}"]
    options += ["--quick"] * args.quick
    current = args.out / describe_revision(ROOT)
    run_worker(ROOT, _empty(current), options)
    if not args.base:
        return 0
    with open_worktree(ROOT, args.base, args.out) as (tree, revision):
        base = args.out / f"{revision}-base"
        run_worker(tree, _empty(base), options)
    return compare_folders(base, current, max_lines=args.lines)


def _empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    return folder


if __name__ == "__main__":
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.exit(main())
