"""One model of the repository as clients meet it: the versions that answer, and the state of the others.

A slot is changed on the thread of the event loop alone, in one go between two requests.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from dovetail_serve.errors import NotReadyError, UnknownModelError
from dovetail_serve.models.loaded import LoadedModel
from dovetail_serve.protocol.documents import IndexEntry, ModelConfig, ModelMetadata
from dovetail_serve.repository.scan import Stamp

__all__ = ["LOADING", "READY", "UNAVAILABLE", "UNLOADING", "LoadedFrom", "ModelSlot"]

READY = "READY"
LOADING = "LOADING"
UNLOADING = "UNLOADING"
UNAVAILABLE = "UNAVAILABLE"
PLATFORM = "dovetail"


@dataclass(frozen=True)
class LoadedFrom:
    """The files that a version was loaded from."""

    config: Stamp
    files: Stamp
    digest: str


class ModelSlot:
    """The versions of one model."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock = asyncio.Lock()
        """Held by whoever loads or unloads the model."""
        self.is_unloaded = False
        """Whether somebody took it out of service; then changes of its files do not bring it back."""
        self.sources: dict[str, LoadedFrom] = {}
        """Version -> what it was loaded from."""
        self._models: dict[str, LoadedModel] = {}
        self._newest: LoadedModel | None = None
        self._entries: dict[str, IndexEntry] = {}
        self._metadata: dict[str, ModelMetadata] = {}

    # asked by clients

    def find(self, version: str) -> LoadedModel:
        """The version that answers; the newest of those that are ready where none is named.

        Raises:
            UnknownModelError: There is no such version.
            NotReadyError: It is there and cannot run.
        """
        model = self._models.get(version) if version else self._newest
        if model is None:
            raise self._explain_missing(version)
        return model

    def has_ready(self, version: str) -> bool:
        """Whether a version, or any, can run."""
        return version in self._models if version else self._newest is not None

    def describe(self, version: str) -> ModelMetadata:
        """What clients need to write a request."""
        return self._metadata[self.find(version).parts.version]

    def configuration(self, version: str) -> ModelConfig:
        """How a version is served."""
        parts = self.find(version).parts
        settings = parts.settings
        return ModelConfig(
            metadata=self.describe(version),
            max_batch_size=settings.max_batch_size,
            instances=settings.instances,
            max_queue_delay_us=settings.max_queue_delay_us,
            max_queue_size=settings.max_queue_size,
            default_timeout_us=settings.default_timeout_us,
            parameters={
                "batching": parts.batching.reason,
                "executor": parts.note,
                "default_priority": str(settings.default_priority),
                "threads": str(settings.threads),
                "providers": ", ".join(device.provider for device in parts.engine.manifest.devices),
            },
        )

    @property
    def models(self) -> dict[str, LoadedModel]:
        """The versions that are ready."""
        return self._models

    @property
    def entries(self) -> list[IndexEntry]:
        """The state of every version."""
        return [self._entries[version] for version in sorted(self._entries, key=lambda text: int(text or 0))]

    def _explain_missing(self, version: str) -> UnknownModelError | NotReadyError:
        if version and version not in self._entries:
            return UnknownModelError(f"Request for unknown model: '{self.name}' version {version[:20]} is not found")
        entries = [self._entries[version]] if version else self.entries
        reasons = "; ".join(dict.fromkeys(entry.reason or entry.state.lower() for entry in entries))
        return NotReadyError(f"model '{self.name}' is not ready: {reasons or 'it is not loaded'}")

    # changed by whoever loads

    def mark(self, version: str, state: str, reason: str = "") -> None:
        """Say how it stands with a version; one that answers stays ready, with the reason beside."""
        if version in self._models and state != UNLOADING:
            state = READY
        self._entries[version] = IndexEntry(self.name, version, state, reason)

    def mark_problem(self, reason: str) -> None:
        """Say what is wrong with the model as a whole: beside the versions that answer, or in place of all."""
        if not self._models:
            self._entries.clear()
        for version in list(self._models) or [""]:
            self.mark(version, UNAVAILABLE, reason)

    def swap_in(self, model: LoadedModel, source: LoadedFrom) -> LoadedModel | None:
        """Let a model answer from now on; the one that it replaces is the caller's to finish and close."""
        version = model.parts.version
        self._entries.pop("", None)
        old = self._models.get(version)
        self._models[version] = model
        self.sources[version] = source
        self.mark(version, READY)
        self._update()
        return old

    def take_out(self, version: str) -> LoadedModel | None:
        """Let a version answer no more."""
        model = self._models.pop(version, None)
        self.sources.pop(version, None)
        self._update()
        return model

    def forget(self, version: str) -> None:
        """Leave a version out of the index."""
        self._entries.pop(version, None)

    def _update(self) -> None:
        versions = tuple(sorted(self._models, key=int))
        self._newest = self._models[versions[-1]] if versions else None
        self._metadata = {version: self._make_metadata(self._models[version], versions) for version in versions}

    def _make_metadata(self, model: LoadedModel, versions: tuple[str, ...]) -> ModelMetadata:
        ports = model.parts.ports
        inputs, outputs = tuple(p.metadata for p in ports.inputs), tuple(p.metadata for p in ports.outputs)
        return ModelMetadata(self.name, versions, PLATFORM, inputs, outputs)
