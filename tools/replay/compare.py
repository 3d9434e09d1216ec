"""Comparison of two replays."""

from __future__ import annotations

import difflib
from pathlib import Path

__all__ = ["compare_folders"]


def compare_folders(base: Path, current: Path, *, max_lines: int) -> int:
    """Print the differences of two replays, and write all of them to a file next to the folders.

    Args:
        base: Replay of the base revision.
        current: Replay of the current tree.
        max_lines: Number of lines of the unified difference to print.

    Returns:
        0 if the replays are equal, otherwise 1.
    """
    before, after = _list_files(base), _list_files(current)
    changed = [name for name in sorted(before | after) if _read(base / name) != _read(current / name)]
    if not changed:
        print(f"No difference in {len(after)} files.")
        return 0
    lines = [line for name in changed for line in _diff(base, current, name)]
    path = current.parent / f"{base.name}-to-{current.name}.diff"
    path.write_text("".join(lines), encoding="utf-8")
    for name in changed:
        state = "added" if name not in before else "removed" if name not in after else "changed"
        print(f"{state}: {name}")
    print("".join(lines[:max_lines]), end="")
    hidden = len(lines) - max_lines
    print(f"{len(changed)} of {len(before | after)} files differ; {max(hidden, 0)} more lines in {path}")
    return 1


def _list_files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


def _diff(base: Path, current: Path, name: str) -> list[str]:
    before, after = (_read(folder / name) or "" for folder in (base, current))
    pair = (f"base/{name}", f"current/{name}")
    return list(difflib.unified_diff(before.splitlines(True), after.splitlines(True), *pair))
