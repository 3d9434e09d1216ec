"""Lists what a repository holds: ``<model>/<version>/model.plan`` or ``model.onnx``, and ``<model>/config.toml``.

Links are not followed, so nothing outside of the repository is ever reached. What is no model by its name is left out;
what is one and cannot be served is listed with the reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dovetail_serve.repository.names import is_model_name, is_version
from dovetail_serve.repository.problems import RepositoryError

__all__ = [
    "KEPT_PLAN",
    "KEPT_RECORD",
    "ModelFiles",
    "Stamp",
    "VersionFiles",
    "find_misnamed",
    "scan_model",
    "scan_repository",
]

KEPT_PLAN: Final = "model.onnx.plan"
"""The plan that was built of ``model.onnx``."""
KEPT_RECORD: Final = "model.onnx.plan.json"
"""What it was built of."""
_SOURCES: Final[tuple[str, ...]] = ("model.plan", "model.onnx")
_DEEPEST: Final = 4
_MOST_FILES: Final = 10_000
_SHOWN: Final = 5

Stamp = tuple[tuple[str, int, int, int], ...]
"""Name, time of the last change, size and number of each file: equal as long as nobody has touched them."""


@dataclass(frozen=True)
class VersionFiles:
    """The folder of one version."""

    version: str
    folder: Path
    source: Path | None
    """The plan or the ONNX model."""
    files: tuple[str, ...]
    """Everything that belongs to it, relative to the folder."""
    stamp: Stamp
    problem: str = ""
    """Why it cannot be loaded, as far as names tell."""


@dataclass(frozen=True)
class ModelFiles:
    """The folder of one model."""

    name: str
    folder: Path
    config: Path | None = None
    config_stamp: Stamp = ()
    versions: Mapping[str, VersionFiles] = field(default_factory=dict)
    problem: str = ""


def scan_repository(root: Path) -> dict[str, ModelFiles]:
    """The models by name.

    Raises:
        RepositoryError: The folder cannot be listed.
    """
    names = [entry.name for entry in _list(root) if is_model_name(entry.name) and _may_be_model(entry)]
    return {name: scan_model(root, name) for name in names}


def _list(root: Path) -> list[os.DirEntry[str]]:
    try:
        return sorted(os.scandir(root), key=lambda entry: entry.name)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise RepositoryError(f"the repository cannot be listed: {reason}", where=f"'{root}'") from error


def _may_be_model(entry: os.DirEntry[str]) -> bool:
    return entry.is_symlink() or entry.is_dir(follow_symlinks=False)


def scan_model(root: Path, name: str) -> ModelFiles:
    """What the folder of one model holds; one that cannot be read is listed with the reason."""
    folder = root / name
    if folder.is_symlink():
        return ModelFiles(name, folder, problem=_LINK)
    try:
        entries = {entry.name: entry for entry in os.scandir(folder)}
        config = entries.get("config.toml")
        folders = [entry for key, entry in entries.items() if is_version(key) and _may_be_model(entry)]
        versions = {entry.name: _scan_version(folder, entry) for entry in sorted(folders, key=lambda e: int(e.name))}
        stamp = (_stamp(config, "config.toml"),) if config else ()
    except OSError as error:
        return ModelFiles(name, folder, problem=f"its folder cannot be read: {error.strerror}")
    problem = "" if versions else _tell_versionless(name, entries)
    return ModelFiles(name, folder, folder / "config.toml" if config else None, stamp, versions, problem)


def _tell_versionless(name: str, entries: Mapping[str, os.DirEntry[str]]) -> str:
    others = sorted(key for key, entry in entries.items() if _may_be_model(entry))[:_SHOWN]
    got = f", got {', '.join(others)}" if others else ""
    return f"it has no version; expected a folder such as {name}/1 with model.plan or model.onnx{got}"


def find_misnamed(root: Path) -> list[str]:
    """Folders that hold models under names that no model may have; hidden ones are meant to be left out.

    Raises:
        RepositoryError: The folder cannot be listed.
    """
    folders = [entry.name for entry in _list(root) if entry.is_dir(follow_symlinks=False)]
    others = [name for name in folders if not name.startswith(".") and not is_model_name(name)]
    return [name for name in others if scan_model(root, name).versions]


_LINK: Final = "its folder is a link, and links are not followed; put the folder itself there"


def _scan_version(parent: Path, entry: os.DirEntry[str]) -> VersionFiles:
    folder = parent / entry.name
    if entry.is_symlink():
        return VersionFiles(entry.name, folder, None, (), (), _LINK)
    found = sorted(_walk(folder, "", 0))
    stamps = tuple(_stamp(each, name) for name, each in found[:_MOST_FILES])
    names = tuple(name for name, _ in found)
    sources = [name for name in _SOURCES if name in names]
    problem = _find_problem(folder, sources, len(found))
    return VersionFiles(entry.name, folder, None if problem else folder / sources[0], names, stamps, problem)


def _find_problem(folder: Path, sources: list[str], count: int) -> str:
    if count > _MOST_FILES:
        return f"it has more than {_MOST_FILES} files"
    if len(sources) > 1:
        return "it has model.plan and model.onnx; expected one of them, remove the other"
    if sources:
        return ""
    linked = [name for name in _SOURCES if (folder / name).is_symlink()]
    if linked:
        return f"{linked[0]} is a link, and links are not followed; put the file itself there"
    return "it has neither model.plan nor model.onnx"


def _walk(folder: Path, prefix: str, depth: int) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """The regular files of a version, without hidden ones and without what was built of them."""
    with os.scandir(folder) as entries:
        for entry in entries:
            name = f"{prefix}{entry.name}"
            if entry.name.startswith(".") or name in (KEPT_PLAN, KEPT_RECORD):
                continue
            if entry.is_file(follow_symlinks=False):
                yield name, entry
            elif entry.is_dir(follow_symlinks=False) and depth < _DEEPEST:
                yield from _walk(Path(entry.path), f"{name}/", depth + 1)


def _stamp(entry: os.DirEntry[str], name: str) -> tuple[str, int, int, int]:
    status = entry.stat(follow_symlinks=False)
    return name, status.st_mtime_ns, status.st_size, status.st_ino
