"""Brings slots up to date with the repository: loads what is new or changed, and retires what is gone or replaced."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from dovetail.errors import DovetailError
from dovetail_serve.models.loaded import LoadedModel, ModelParts
from dovetail_serve.models.loading import LoadOptions, load_parts
from dovetail_serve.models.slots import LOADING, READY, UNAVAILABLE, UNLOADING, LoadedFrom, ModelSlot
from dovetail_serve.models.threads import run_on_thread
from dovetail_serve.repository.plans import digest_version
from dovetail_serve.repository.problems import RepositoryError, tell_client, tell_on_one_line
from dovetail_serve.repository.scan import ModelFiles, VersionFiles, scan_model
from dovetail_serve.repository.settings import ModelSettings, read_settings

__all__ = ["ModelControl"]

_LOG: Final = logging.getLogger("dovetail_serve.models")
_LOADERS: Final = 4


class ModelControl:
    """Loads and retires models; called on the thread of the event loop, and works on others.

    Args:
        root: The repository.
        options: What plans may do.
    """

    def __init__(self, root: Path, options: LoadOptions) -> None:
        self._root = root
        self._options = options
        self._loads = asyncio.Semaphore(_LOADERS)
        self._retiring: set[asyncio.Task[None]] = set()

    async def update(self, slot: ModelSlot, *, force: bool = False) -> list[str]:
        """Load the versions of a model that are new or changed, and retire those that are not to be served.

        Args:
            slot: The model.
            force: Whether versions that have not changed are loaded again too.

        Returns:
            What went wrong, as clients may read it.
        """
        async with slot.lock:
            files = await run_on_thread(scan_model, self._root, slot.name)
            try:
                settings = await run_on_thread(_read_all, files)
            except Exception as error:  # noqa: BLE001 - one model that is wrong never stops the others
                reason = self._report(slot.name, error)
                slot.mark_problem(reason)
                return [reason]
            slot.is_unloaded = False
            wanted = settings.versions.choose(list(files.versions))
            for version in set(slot.models) - set(wanted):
                self._retire(slot, version)
            for entry in slot.entries:
                if entry.version not in wanted and entry.state != UNLOADING:
                    slot.forget(entry.version)
            problems = await asyncio.gather(*(self._load(slot, files, each, settings, force) for each in wanted))
            return [problem for problem in problems if problem]

    async def unload(self, slot: ModelSlot) -> None:
        """Take a model out of service, and return when its accepted requests are answered."""
        async with slot.lock:
            slot.is_unloaded = True
            tasks = [self._retire(slot, version) for version in list(slot.models)]
            for entry in slot.entries:
                if entry.state != UNLOADING:
                    slot.mark(entry.version, UNAVAILABLE, "unloaded")
        await asyncio.gather(*(task for task in tasks if task is not None))

    async def _load(
        self, slot: ModelSlot, files: ModelFiles, version: str, settings: ModelSettings, force: bool
    ) -> str:
        """Load one version; what it gives is why it could not."""
        try:
            found = _find(files, version)
            if not force and not await run_on_thread(_has_changed, slot.sources.get(version), files, found):
                slot.mark(version, READY)  # what was refused meanwhile is gone
                return ""
            if version not in slot.models:
                slot.mark(version, LOADING)
            async with self._loads:
                digest, parts = await run_on_thread(_load_version, files, found, settings, self._options)
        except Exception as error:  # noqa: BLE001 - a plugin, a provider or a file may raise anything
            return self._refuse(slot, version, error)
        model = LoadedModel(parts, asyncio.get_running_loop())
        source = LoadedFrom(files.config_stamp, found.stamp, digest)
        self._finish_later(slot.swap_in(model, source), slot, "")
        _LOG.info("model '%s' version %s is ready; %s; %s", slot.name, version, parts.batching.reason, parts.note)
        return ""

    def _refuse(self, slot: ModelSlot, version: str, error: Exception) -> str:
        reason = self._report(f"{slot.name}/{version}", error)
        told = f"what is there now is refused, and the earlier one goes on: {reason}"
        slot.mark(version, UNAVAILABLE, told if version in slot.models else reason)
        return reason

    def _report(self, where: str, error: Exception) -> str:
        is_ours = isinstance(error, DovetailError)
        _LOG.error("%s cannot be loaded: %s", where, tell_on_one_line(error), exc_info=None if is_ours else error)
        return tell_client(error, self._root)

    def _retire(self, slot: ModelSlot, version: str) -> asyncio.Task[None] | None:
        """Let a version answer no more, and close it when its requests are answered."""
        model = slot.take_out(version)
        slot.mark(version, UNLOADING)
        return self._finish_later(model, slot, version)

    def _finish_later(self, model: LoadedModel | None, slot: ModelSlot, version: str) -> asyncio.Task[None] | None:
        if model is None:
            return None
        task = asyncio.get_running_loop().create_task(self._finish(model, slot, version))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)
        return task

    async def _finish(self, model: LoadedModel, slot: ModelSlot, version: str) -> None:
        await model.finish()
        await run_on_thread(model.close)
        if not version or version in slot.models:
            return
        _LOG.info("model '%s' version %s is unloaded", slot.name, version)
        if slot.is_unloaded:
            slot.mark(version, UNAVAILABLE, "unloaded")
        else:
            slot.forget(version)

    async def finish(self) -> None:
        """Return when everything that is being retired is closed."""
        while self._retiring:
            await asyncio.wait(set(self._retiring))


def _read_all(files: ModelFiles) -> ModelSettings:
    if files.problem:
        raise RepositoryError(files.problem, where=files.name)
    return read_settings(files.config, files.name)


def _find(files: ModelFiles, version: str) -> VersionFiles:
    found = files.versions.get(version)
    if found is None:
        raise RepositoryError(
            f"there is no version {version}",
            where=f"{files.name}/config.toml, 'versions'",
            got=", ".join(files.versions),
        )
    return found


def _has_changed(source: LoadedFrom | None, files: ModelFiles, version: VersionFiles) -> bool:
    """Whether a version is other than what was loaded; files that were only touched are the same."""
    if source is None or source.config != files.config_stamp:
        return True
    return source.files != version.stamp and (bool(version.problem) or source.digest != digest_version(version))


def _load_version(
    files: ModelFiles, version: VersionFiles, settings: ModelSettings, options: LoadOptions
) -> tuple[str, ModelParts]:
    # Before the files are read: what changes in between is then taken for a change, and loaded again.
    digest = digest_version(version)
    return digest, load_parts(files, version, settings, options)
