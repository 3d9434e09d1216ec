"""From plan file to engine: verification, trust, carried libraries, creators."""

from __future__ import annotations

import os
from typing import Any

from dovetail.allocators import IGpuAllocator
from dovetail.errors import PlanCorruptError, PlanTrustError
from dovetail.loggers import ErrorRecorder, IErrorRecorder, ILogger, Logger
from dovetail.plan.container import PlanFile, verify_blob
from dovetail.plan.manifest import LibraryRecord, Manifest, decode_manifest
from dovetail.plan.verify import verify_manifest
from dovetail.plugin.libraries import load_packed_library
from dovetail.plugin.registry import PluginRegistry, get_plugin_registry
from dovetail.runtime.engine import Engine

__all__ = ["Runtime", "load"]


class Runtime:
    """Loads plans. Its registry is searched before the global one."""

    def __init__(self, logger: ILogger | None = None) -> None:
        self.logger: ILogger = logger or Logger()
        self.error_recorder: IErrorRecorder = ErrorRecorder()
        self.gpu_allocator: IGpuAllocator | None = None
        self.engine_host_code_allowed = False
        """Whether a plugin library carried in a plan may be imported. Only ever set by the caller."""
        self.max_threads = 1
        self._registry = PluginRegistry(parent=get_plugin_registry())

    def get_plugin_registry(self) -> PluginRegistry:
        """The registry of this runtime."""
        return self._registry

    def deserialize_cuda_engine(self, serialized_engine: Any) -> Engine:
        """An engine from the bytes of a plan."""
        return self._load(PlanFile.from_bytes(memoryview(serialized_engine)))

    def load_engine(self, path: str | os.PathLike[str]) -> Engine:
        """An engine from a plan file, which is mapped and not copied."""
        return self._load(PlanFile.open(path))

    def _load(self, file: PlanFile) -> Engine:
        try:
            manifest = decode_manifest(file.manifest)
            verify_manifest(manifest, file)
            file.verify_padding()
            registry = PluginRegistry(parent=self._registry)
            for library in manifest.libraries:
                self._load_library(library, manifest, file, registry)
            return Engine(manifest, file, registry, allocator=self.gpu_allocator, owns_registry=True)
        except BaseException:
            file.close()
            raise

    def _load_library(
        self, library: LibraryRecord, manifest: Manifest, file: PlanFile, registry: PluginRegistry
    ) -> None:
        if not self.engine_host_code_allowed:
            raise PlanTrustError(
                f"the plan carries the plugin library '{library.name}', which is code",
                fix="if you trust whoever made the plan, load it with host_code=True "
                "(runtime.engine_host_code_allowed = True)",
            )
        record = manifest.blobs.get(library.blob)
        if record is None or record.kind != "library" or record.algorithm != "sha256":
            raise PlanCorruptError("a carried library has no sha256 digest", where=f"library '{library.name}'")
        payload = file.blob(library.blob)
        verify_blob(library.blob, payload, record.algorithm, record.digest)
        load_packed_library(library.name, bytes(payload), registry)


def load(path: str | os.PathLike[str], *, host_code: bool = False, logger: ILogger | None = None) -> Engine:
    """An engine from a plan file.

    Args:
        path: The file; it is mapped, so keep it while the engine lives.
        host_code: Whether plugin libraries carried in the plan may be imported.
        logger: Where messages go.
    """
    runtime = Runtime(logger)
    runtime.engine_host_code_allowed = host_code
    return runtime.load_engine(path)
