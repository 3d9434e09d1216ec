"""Runs of the build replay in a process of its own, with a planted change."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["replay"]

ROOT = Path(__file__).parents[2]


def replay(out: Path, *options: str, seed: str = "0", plant: str = "") -> dict[str, str]:
    """Replay the selected cases and return the text of each file.

    Args:
        out: Folder for the output.
        *options: Options of `replay.worker`.
        seed: Value of ``PYTHONHASHSEED``.
        plant: Statements that run before any case is imported, such as a change of a function.
    """
    code = f"{plant}\nimport sys\nfrom replay.worker import main\nsys.exit(main(sys.argv[1:]))"
    paths = [ROOT, *sorted(ROOT.glob("packages/*/src")), ROOT / "tools"]
    env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    command = [sys.executable, "-c", code, str(out), *options]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.relative_to(out).as_posix(): path.read_text() for path in out.rglob("*") if path.is_file()}
