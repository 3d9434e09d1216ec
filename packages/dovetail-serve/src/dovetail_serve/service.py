"""The service over a repository: finds the model of a request, and follows changes of the files."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

from dovetail.errors import DovetailError, UsageError
from dovetail.near_names import suggest
from dovetail_serve.errors import DrainingError, NotReadyError, ServeError, UnknownModelError
from dovetail_serve.models.control import ModelControl
from dovetail_serve.models.loaded import LoadedModel
from dovetail_serve.models.loading import LoadOptions
from dovetail_serve.models.slots import READY, ModelSlot
from dovetail_serve.models.threads import run_on_thread
from dovetail_serve.options import ServerOptions
from dovetail_serve.protocol.documents import IndexEntry, ModelConfig, ModelMetadata, ModelStatistics
from dovetail_serve.protocol.requests import InferRequest, InferResponse
from dovetail_serve.repository.names import NAME_RULE
from dovetail_serve.repository.scan import ModelFiles, find_misnamed, scan_repository
from dovetail_serve.repository.scratch import ScratchFolder
from dovetail_serve.repository.watching import RepositoryWatch

__all__ = ["InferenceService"]

_LOG: Final = logging.getLogger("dovetail_serve.service")
_CLOSE_S: Final = 10.0


class InferenceService:
    """Serves the models of a folder; see ``dovetail_serve.protocol.service.Service``.

    Everything but the constructor is called on the thread of one event loop:
    ``async with InferenceService("models") as service: ...``.

    Args:
        repository: The folder with the models.
        options: What plans may do, and how often the folder is looked at.

    Raises:
        UsageError: It is no folder.
    """

    def __init__(self, repository: str | Path, options: ServerOptions | None = None) -> None:
        self._options = options or ServerOptions()
        path = Path(repository)
        if not path.is_dir():
            fix = "make it, with a model at <name>/1/model.plan or model.onnx"
            raise UsageError("the repository is no folder", where=f"'{path}'", fix=fix)
        self._root = path.resolve()
        self._scratch = ScratchFolder()
        load_options = LoadOptions(scratch=self._scratch.path, allow_host_code=self._options.allow_host_code)
        self._control = ModelControl(self._root, load_options)
        self._slots: dict[str, ModelSlot] = {}
        self._watch = RepositoryWatch()
        self._misnamed: set[str] = set()
        """Folders that were told of."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._loaded = asyncio.Event()
        self._is_draining = False

    async def __aenter__(self) -> InferenceService:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.drain()
        await self.close()

    # beginning and end

    async def start(self) -> None:
        """Begin to load all models in the background; ``wait_loaded`` tells when each was tried.

        Raises:
            RepositoryError: The folder cannot be listed.
        """
        found = await self._scan()
        self._watch.note_all(found)
        for name in found:
            self._slots[name] = ModelSlot(name)
        self._spawn(self._load_all())
        if self._options.poll_s > 0:
            self._spawn(self._poll())

    async def wait_loaded(self) -> None:
        """Return when every model of the repository was loaded, or could not be."""
        await self._loaded.wait()

    async def drain(self) -> None:
        """Take no further requests, and return when those that were accepted are answered."""
        self._is_draining = True
        await asyncio.gather(*(model.finish() for model in self._models()))
        await self._control.finish()

    async def close(self) -> None:
        """Close all engines; requests that are still under way get some seconds to end."""
        self._is_draining = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        closing = [run_on_thread(model.close) for model in self._models()]
        try:
            await asyncio.wait_for(asyncio.gather(*closing, self._control.finish()), _CLOSE_S)
        except TimeoutError:
            _LOG.warning("a model still runs %g seconds after the service was closed, and is left alone", _CLOSE_S)
        self._slots.clear()
        self._scratch.remove()

    # what clients ask

    @property
    def is_ready(self) -> bool:
        """Whether it takes requests: all models were tried, and it does not drain."""
        return self._loaded.is_set() and not self._is_draining

    def is_model_ready(self, name: str, version: str = "") -> bool:
        """Whether the model, or the version of it, can run."""
        slot = self._slots.get(name)
        return slot is not None and not self._is_draining and slot.has_ready(version)

    def describe(self, name: str, version: str = "") -> ModelMetadata:
        """What clients need to write a request."""
        return self._find(name).describe(version)

    def configuration(self, name: str, version: str = "") -> ModelConfig:
        """How the model is served."""
        return self._find(name).configuration(version)

    def statistics(self, name: str = "", version: str = "") -> Sequence[ModelStatistics]:
        """What has been asked of the model, or of all models."""
        if name and version:
            return [self._find(name).find(version).statistics()]
        slots = [self._find(name)] if name else list(self._slots.values())
        return [model.statistics() for slot in slots for _, model in sorted(slot.models.items(), key=_by_number)]

    def index(self, *, ready_only: bool = False) -> Sequence[IndexEntry]:
        """The models of the repository, with those that could not be loaded."""
        entries = [entry for name in sorted(self._slots) for entry in self._slots[name].entries]
        return [entry for entry in entries if entry.state == READY or not ready_only]

    async def infer(self, request: InferRequest) -> InferResponse:
        """Queue the request, and wait for its response."""
        if self._is_draining:
            raise DrainingError("the server is stopping and takes no further requests")
        slot = self._slots.get(request.model) or self._find(request.model)
        return await slot.find(request.version).infer(request)

    def note_unread(self, model: str, version: str, error: ServeError) -> None:
        """Nothing: statistics are those of requests that a model has seen."""

    async def load(self, name: str) -> None:
        """Load or reload a model of the repository; the one that is loaded goes on when it fails."""
        found = await run_on_thread(scan_repository, self._root)
        if name not in found:
            raise self._unknown(name)
        self._watch.note(found[name])
        slot = self._slots.setdefault(name, ModelSlot(name))
        problems = await self._control.update(slot, force=True)
        if problems:
            raise NotReadyError(f"failed to load '{name}': {'; '.join(problems)}")

    async def unload(self, name: str) -> None:
        """Take a model out of service, after the requests that were accepted."""
        await self._control.unload(self._find(name))

    # following the files

    async def _load_all(self) -> None:
        try:
            await asyncio.gather(*(self._control.update(slot) for slot in list(self._slots.values())))
        finally:
            self._loaded.set()

    async def _poll(self) -> None:
        await self._loaded.wait()
        while not self._is_draining:
            await asyncio.sleep(self._options.poll_s)
            try:
                await self._look()
            except DovetailError as error:
                _LOG.warning("the repository is not followed for now: %s", error)
            except Exception:  # noqa: BLE001 - whatever it is, requests go on, and the next look may see more
                _LOG.exception("the repository is not followed for now")

    async def _scan(self) -> dict[str, ModelFiles]:
        """The models of the repository; a folder whose name no model may have is told of once."""
        found = await run_on_thread(scan_repository, self._root)
        misnamed = set(await run_on_thread(find_misnamed, self._root))
        for name in sorted(misnamed - self._misnamed):
            _LOG.warning("folder '%s' is left out: %s", name, NAME_RULE)
        self._misnamed = misnamed
        return found

    async def _look(self) -> None:
        """Load what has changed and is no longer being written to."""
        found = await self._scan()
        changed = self._watch.find_changed(found)
        for name in changed:
            slot = self._slots.setdefault(name, ModelSlot(name))
            if slot.is_unloaded:
                continue
            self._spawn(self._update(slot) if name in found else self._remove(slot))

    async def _update(self, slot: ModelSlot) -> None:
        await self._control.update(slot)

    async def _remove(self, slot: ModelSlot) -> None:
        await self._control.unload(slot)
        if self._slots.get(slot.name) is slot and slot.is_unloaded:
            del self._slots[slot.name]

    # odds and ends

    def _find(self, name: str) -> ModelSlot:
        slot = self._slots.get(name)
        if slot is None:
            raise self._unknown(name)
        return slot

    def _unknown(self, name: str) -> UnknownModelError:
        hint = suggest(name[:200], self._slots)
        shown = f"Request for unknown model: '{name[:200]}' is not found"
        return UnknownModelError(f"{shown}; {hint}" if hint else shown)

    def _models(self) -> list[LoadedModel]:
        return [model for slot in self._slots.values() for model in slot.models.values()]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _by_number(item: tuple[str, LoadedModel]) -> int:
    return int(item[0])
