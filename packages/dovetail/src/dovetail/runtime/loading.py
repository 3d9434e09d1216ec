"""From plan file to engine: verification, trust, carried libraries, creators."""

from __future__ import annotations

import os
from typing import Any

from dovetail._no_op_context import NoOpContext
from dovetail.allocators import IGpuAllocator
from dovetail.decoding import judging
from dovetail.errors import PlanCorruptError, PlanTrustError, UsageError
from dovetail.loggers import ErrorRecorder, IErrorRecorder, ILogger, Logger, Severity
from dovetail.plan.carried import count_carried, find_carried_blobs
from dovetail.plan.container import PlanFile
from dovetail.plan.manifest import Manifest, decode_manifest
from dovetail.plan.untimed import describe_untimed
from dovetail.plan.verify.manifest_rules import verify_manifest
from dovetail.plugin.registry import PluginRegistry, get_plugin_registry
from dovetail.provider.options import ProviderOptions, Providers
from dovetail.runtime.engine import Engine
from dovetail.runtime.memory.blobs import BlobStore
from dovetail.runtime.verification import verify_meanwhile, weights_of_partitions

__all__ = ["Runtime", "load"]


class Runtime(NoOpContext):
    """Loads plans. Its registry is searched before the global one.

    Args:
        logger: Where messages go.
        provider_options: See ``provider_options``.
    """

    def __init__(self, logger: ILogger | None = None, *, provider_options: ProviderOptions | None = None) -> None:
        self.logger: ILogger = logger or Logger()
        self.provider_options: ProviderOptions = provider_options or {}
        """Provider -> its options, for engines that are loaded from now on; a plan has none stored. A provider that
        is not named has its default options."""
        self.error_recorder: IErrorRecorder = ErrorRecorder()
        self.gpu_allocator: IGpuAllocator | None = None
        self.engine_host_code_allowed = False
        """Whether a plugin library carried in a plan may be imported. Only ever set by the caller."""
        self.engine_device_code_allowed = True
        """Whether device code in a plan may be given to its provider. Its digest is checked either way."""
        self.capture_graphs = True
        """Whether engines capture the steps that a device can replay."""
        self.max_threads = 1
        self._registry = PluginRegistry(parent=get_plugin_registry())

    def __repr__(self) -> str:
        code = [
            kind
            for kind, is_allowed in (
                ("host code", self.engine_host_code_allowed),
                ("device code", self.engine_device_code_allowed),
            )
            if is_allowed
        ]
        return f"<Runtime that allows {' and '.join(code) or 'no code'}, with {self._registry!r}>"

    def get_plugin_registry(self) -> PluginRegistry:
        """The registry of this runtime."""
        return self._registry

    def deserialize_cuda_engine(self, serialized_engine: Any) -> Engine:
        """An engine from the bytes of a plan."""
        try:
            view = memoryview(serialized_engine)
        except TypeError:
            raise UsageError("not the bytes of a plan", got=type(serialized_engine).__name__) from None
        return self._load(PlanFile.from_bytes(view))

    def load_engine(self, path: str | os.PathLike[str]) -> Engine:
        """An engine from a plan file, which is mapped and not copied."""
        return self._load(PlanFile.open(path))

    def _load(self, file: PlanFile) -> Engine:
        self._tell_idle()
        try:
            with judging(_unusable):
                return self._load_checked(file)
        except BaseException:
            file.close()
            raise

    def _load_checked(self, file: PlanFile) -> Engine:
        manifest = decode_manifest(file.manifest)
        verify_manifest(manifest, file)
        file.verify_padding()
        self._check_trust(manifest)
        self._tell_untimed(manifest)
        # Every digest is checked before any code of the plan runs, and before the caller has the engine.
        others = weights_of_partitions(manifest)
        blobs = BlobStore(manifest.blobs, file, mapped_by_others=others, unread=find_carried_blobs(manifest))
        if not others:
            return self._make_engine(manifest, file, blobs)
        return verify_meanwhile(
            blobs.verify_others, lambda: self._make_engine(manifest, file, blobs), lambda engine: engine.close()
        )

    def _tell_idle(self) -> None:
        """Tell of attributes that somebody set and nothing reads."""
        if self.max_threads != 1:
            reason = "providers have threads of their own; give them with provider_options"
            self.logger.log(Severity.WARNING, f"runtime.max_threads has no effect: {reason}")

    def _tell_untimed(self, manifest: Manifest) -> None:
        """Tell of a plan that meets a device without having been tuned on one."""
        untimed = describe_untimed(manifest)
        if untimed is not None:
            command = "tune PLAN" if count_carried(manifest) else "build MODEL -o PLAN --if-untuned"
            fix = f"have it tuned here with 'dovetail {command}'"
            self.logger.log(Severity.WARNING, f"plan '{manifest.name[:200]}': {untimed}; {fix}")

    def _check_trust(self, manifest: Manifest) -> None:
        if manifest.libraries and not self.engine_host_code_allowed:
            raise PlanTrustError(
                f"the plan carries the plugin library {manifest.libraries[0].name!a}, which is code",
                fix="if you trust whoever made the plan, load it with host_code=True "
                "(runtime.engine_host_code_allowed = True)",
            )
        code = [name for name, record in manifest.blobs.items() if record.kind == "kernel"]
        if code and not self.engine_device_code_allowed:
            raise PlanTrustError(
                f"the plan carries device code, {len(code)} piece(s) such as {code[0][:60]!a}, which is not allowed",
                fix="if you trust whoever made the plan, load it with device_code=True "
                "(runtime.engine_device_code_allowed = True), or build it here from the model",
            )

    def _make_engine(self, manifest: Manifest, file: PlanFile, blobs: BlobStore) -> Engine:
        registry = PluginRegistry(parent=self._registry)
        try:
            if manifest.libraries:
                _load_libraries(manifest, blobs, registry)
            engine = Engine(
                manifest,
                file,
                registry,
                blobs=blobs,
                providers=Providers(self.provider_options, self.logger),
                allocator=self.gpu_allocator,
                owns_registry=True,
                logger=self.logger,
            )
            engine.capture_graphs = self.capture_graphs
            return engine
        except BaseException:
            registry.close()
            raise


def _unusable(reason: str) -> PlanCorruptError:
    return PlanCorruptError(f"the plan cannot be used: {reason}", fix="build the plan again")


def _load_libraries(manifest: Manifest, blobs: BlobStore, registry: PluginRegistry) -> None:
    # Few plans carry libraries, and what imports them takes as long to import as a tenth of the runtime.
    from dovetail.plugin.carried.payload import decode_payload
    from dovetail.plugin.libraries import load_packed_library

    payloads = [(library.name, bytes(blobs.bytes_of(library.blob))) for library in manifest.libraries]
    for name, payload in payloads:
        decode_payload(payload, where=f"library {name!a}")  # all are right before one is imported
    for name, payload in payloads:
        load_packed_library(name, payload, registry)


def load(
    path: str | os.PathLike[str],
    *,
    host_code: bool = False,
    device_code: bool = True,
    provider_options: ProviderOptions | None = None,
    logger: ILogger | None = None,
) -> Engine:
    """An engine from a plan file.

    Args:
        path: The file; it is mapped, so keep it while the engine lives.
        host_code: Whether plugin libraries carried in the plan may be imported.
        device_code: Whether code for accelerators carried in the plan may be loaded there.
        provider_options: Provider -> its options, such as ``{"onnxruntime": {"threads": "2"}}``. They belong to the
            machine that runs, so a plan has none stored: those of the build are not known here.
        logger: Where messages go.

    Raises:
        PlanError: The file is no plan, is damaged, or is not for this version or machine.
        ProviderError: A provider is not there, or an option is wrong.
    """
    runtime = Runtime(logger, provider_options=provider_options)
    runtime.engine_host_code_allowed = host_code
    runtime.engine_device_code_allowed = device_code
    return runtime.load_engine(path)
