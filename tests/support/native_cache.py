"""What g++ makes for tests, kept under ``build`` by a digest of all it is made of, for all workers and later runs."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["compile_once", "find_compiler"]

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build/tests/native"
HEADERS = (ROOT / "packages/dovetail/src/dovetail/include", ROOT / "examples/cpp")


def find_compiler() -> str:
    """Where g++ is; the test is skipped where there is none."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no g++ here")
    return compiler


def compile_once(name: str, source: Path, options: Iterable[str | Path]) -> Path:
    """The file of this name that g++ makes of a source; it is compiled where nobody has done it before."""
    command = [find_compiler(), str(source), *map(str, options)]
    folder = KEPT / _digest(command, source)
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / name
    with _alone(folder):
        if not made.exists():
            part = made.with_suffix(".part")
            subprocess.run([*command, "-o", part], check=True)
            part.replace(made)
    return made


def _digest(command: Sequence[str], source: Path) -> str:
    digest = hashlib.sha256("\0".join(command).encode())
    digest.update(str(Path(command[0]).resolve().stat().st_mtime_ns).encode())
    headers = sorted(path for folder in HEADERS for path in folder.rglob("*") if path.is_file())
    for path in (source, *headers):
        digest.update(f"\0{path}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:32]


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder; the system gives the lock back when its holder ends."""
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
