"""Gives the plan of a version: the file itself, or one that is built of the ONNX model once and kept beside it.

The server runs a copy of its own. A plan that is written over in place would otherwise change under the engine that
has mapped it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import dovetail
from dovetail.files import open_regular, read_bytes, replacing
from dovetail.loggers import ILogger
from dovetail_serve.repository.problems import RepositoryError
from dovetail_serve.repository.scan import KEPT_PLAN, KEPT_RECORD, ModelFiles, VersionFiles
from dovetail_serve.repository.settings import ModelSettings

__all__ = ["PlanCopy", "digest_version", "provide_plan"]

_LOG: Final = logging.getLogger("dovetail_serve.repository")
_PART_BYTES: Final = 1 << 20
_RECORD_FORMAT: Final = 1
_MOST_RECORD_BYTES: Final = 1 << 16
_one_build: Final = threading.Lock()
"""Builds measure, so two at once would time each other's noise."""


@dataclass(frozen=True)
class PlanCopy:
    """A plan in a folder of the server's own."""

    path: Path
    sha256: str

    def remove(self) -> None:
        """Remove it; an engine that has it mapped must be closed before."""
        shutil.rmtree(self.path.parent, ignore_errors=True)


def provide_plan(
    model: ModelFiles, version: VersionFiles, settings: ModelSettings, scratch: Path, logger: ILogger
) -> PlanCopy:
    """A copy of the plan of a version, built where there is none that fits.

    Raises:
        RepositoryError: The version has no model, or a file cannot be read.
        DovetailError: The model cannot be built.
    """
    where = f"{model.name}/{version.version}"
    if version.source is None:
        raise RepositoryError(version.problem, where=where)
    copy = Path(tempfile.mkdtemp(dir=scratch)) / "model.plan"
    try:
        if version.source.name == "model.plan":
            return PlanCopy(copy, _copy(version.source, copy))
        return _provide_built(version, settings, copy, where, logger)
    except OSError as error:
        shutil.rmtree(copy.parent, ignore_errors=True)
        raise RepositoryError(f"a file cannot be read: {error.strerror}", where=where) from error
    except BaseException:
        shutil.rmtree(copy.parent, ignore_errors=True)
        raise


def digest_version(version: VersionFiles) -> str:
    """A digest of everything in the folder of a version.

    Raises:
        OSError: A file cannot be read.
    """
    whole = hashlib.sha256()
    for name in version.files:
        with open_regular(version.folder / name) as file:
            whole.update(f"{name}\0{_digest(file)}\n".encode())
    return whole.hexdigest()


def _digest(file: BinaryIO, out: BinaryIO | None = None) -> str:
    """The digest of a file, which is copied on the way where there is another one."""
    digest = hashlib.sha256()
    while part := file.read(_PART_BYTES):
        digest.update(part)
        if out is not None:
            out.write(part)
    return digest.hexdigest()


def _copy(source: Path, target: Path) -> str:
    with open_regular(source) as file, target.open("xb") as out:
        return _digest(file, out)


def _provide_built(version: VersionFiles, settings: ModelSettings, copy: Path, where: str, logger: ILogger) -> PlanCopy:
    key = _digest_build(version, settings)
    for folder in (version.folder, _cache_folder(key)):
        found = _copy_kept(folder, key, copy, where)
        if found is not None:
            return found
    with _one_build:
        _LOG.info("%s: building model.onnx", where)
        _build(version, settings, copy, logger)
    with open_regular(copy) as file:
        made = PlanCopy(copy, _digest(file))
    _keep(version, key, made, where)
    return made


def _digest_build(version: VersionFiles, settings: ModelSettings) -> str:
    """A digest of all that the plan depends on."""
    options = {**asdict(settings.build), "provider_options": settings.provider_options, "threads": settings.threads}
    text = json.dumps([_RECORD_FORMAT, dovetail.__version__, options, digest_version(version)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _build(version: VersionFiles, settings: ModelSettings, target: Path, logger: ILogger) -> None:
    config = dovetail.BuilderConfig()
    config.provider_options = {name: dict(chosen) for name, chosen in settings.provider_options.items()}
    build = settings.build
    engine = dovetail.compile(
        version.folder / "model.onnx",
        providers=list(build.providers) or None,
        shapes=dict(build.shapes) or None,
        precision=build.precision or None,
        strict=build.strict,
        rivals=build.rivals,
        config=config,
        logger=logger,
    )
    with engine:
        engine.save(target)


def _copy_kept(folder: Path, key: str, copy: Path, where: str) -> PlanCopy | None:
    """A copy of a kept plan that was built of the same; None where there is none."""
    record = _read_record(folder / KEPT_RECORD)
    if record.get("key") != key:
        return None
    try:
        digest = _copy(folder / KEPT_PLAN, copy)
    except OSError:
        copy.unlink(missing_ok=True)
        return None
    if digest == record.get("sha256"):
        return PlanCopy(copy, digest)
    _LOG.warning("%s: the kept plan is damaged and is built again", where)
    copy.unlink(missing_ok=True)
    return None


def _read_record(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(read_bytes(path, _MOST_RECORD_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _keep(version: VersionFiles, key: str, plan: PlanCopy, where: str) -> None:
    """Write the plan beside its model; where that folder cannot be written to, into a folder of the user's."""
    try:
        _write_kept(version.folder, key, plan)
        return
    except OSError as error:
        folder = _cache_folder(key)
        _LOG.warning("%s: the plan is kept in '%s', as its folder is not writable: %s", where, folder, error.strerror)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_kept(folder, key, plan)
    except OSError as error:
        _LOG.warning("%s: the plan is not kept and is built at each start: %s", where, error.strerror)


def _write_kept(folder: Path, key: str, plan: PlanCopy) -> None:
    """The plan first: a record without its plan would be taken for damage."""
    with replacing(folder / KEPT_PLAN) as out, plan.path.open("rb") as file:
        _digest(file, out)
    with replacing(folder / KEPT_RECORD) as out:
        out.write(json.dumps({"key": key, "sha256": plan.sha256}, indent=1).encode())


def _cache_folder(key: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "dovetail" / "serve" / key
