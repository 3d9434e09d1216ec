"""Cases that are built for CUDA without a device, a compiler and timings.

Each model is built in up to three modes: ``target``, a cross-build for sm_90 with embedded candidates; ``device``, a
build on the fake driver with fake cuBLASLt and cuDNN; and ``tuned``, the plan of ``target`` after `tune_plan` on the
fake driver. The compiler is replaced by a function that returns the digest of the request.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - registers bfloat16 with NumPy

import dovetail as dt
from dovetail.build.builder import Builder
from dovetail.build.plan_tuning import tune_plan
from dovetail.build.tune.cache import TimingCache, TimingValue
from dovetail.network.importer.importer import import_model
from dovetail.plan.container import write_plan
from dovetail.plan.manifest import encode_manifest
from dovetail.provider.loader import register_provider, set_default_options, unregister_provider
from dovetail_cuda.compile.request import CompiledCode
from dovetail_cuda.provider import CudaFactory, CudaProvider
from replay.cuda_models import CudaModel, list_models
from replay.cuda_record import CudaRecord
from replay.recorder import make_plain
from tests.cuda.host.fake_driver import FakeDriver
from tests.cuda.host.fake_provider import FakeToolbox

__all__ = ["replay_cuda"]

TARGET = "fake-sm_90-132"
"""Fingerprint of the fake device, so that a cross-built plan can be tuned on it."""


def replay_cuda(*, is_quick: bool, only: str) -> Iterator[tuple[str, str]]:
    """Yield the file name and the canonical text of each build of the selected models, then those of the kernels."""
    record = CudaRecord()
    with _recording_provider(record):
        for model in list_models():
            if only not in model.name or (is_quick and not model.is_quick):
                continue
            with tempfile.TemporaryDirectory() as folder:
                for mode in model.modes:
                    content = _Build(model, mode, Path(folder), record).run()
                    text = json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
                    yield f"{model.name}.{mode}.txt", make_plain(text, Path(folder))
    yield from record.write_kernels().items()


class _HashTimingCache(TimingCache):
    """Timing cache with a time for every candidate, from the digest of the task key and the name of the candidate.

    With `prefers_libraries` the candidates of cuBLASLt and cuDNN are the fastest, so that plans contain them too.
    """

    prefers_libraries = False

    def query(self, key: str) -> TimingValue | None:
        task = "|".join(key.split("|")[4:])  # without device, provider and version
        digest = hashlib.sha256(task.encode()).digest()
        time_us = 1.0 + int.from_bytes(digest[:4], "little") / 2**32
        if self.prefers_libraries and key.split("|")[-1].startswith("cu"):
            time_us /= 4
        return TimingValue(time_us=round(time_us, 3), low_us=1.0, high_us=2.0, rounds=3)


class _Toolbox(FakeToolbox):
    """Fake driver and libraries; compilation returns the digest of the request."""

    def __init__(self, record: CudaRecord) -> None:
        super().__init__(FakeDriver(multiprocessors=132, memory_bytes=1 << 34))
        self.has_cudnn = True
        self._record = record

    def compile(self, request: Any) -> Any:
        digest = self._record.add_kernel(request)
        return CompiledCode(
            code=digest.encode() * 32,
            name=request.function,
            num_warps=request.num_warps,
            shared_bytes=0,
            starts_early=request.starts_early,
        )


class _Log(dt.ILogger):
    """Warnings and errors."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def log(self, severity: Any, msg: str) -> None:
        if getattr(severity, "name", "") in ("WARNING", "ERROR", "INTERNAL_ERROR"):
            self.lines.append(f"{severity.name}: {msg}")


@contextmanager
def _recording_provider(record: CudaRecord) -> Iterator[None]:
    """Register the provider over the fake driver and record every partition that it returns."""
    originals = {name: getattr(CudaProvider, name) for name in ("build_partition", "tune_partition")}

    def wrap(original: Any) -> Any:
        def build(self: Any, *arguments: Any) -> Any:
            built = original(self, *arguments)
            record.partitions.append(built)
            return built

        return build

    for name, original in originals.items():
        setattr(CudaProvider, name, wrap(original))
    register_provider(CudaFactory(_Toolbox(record)))
    set_default_options("cuda", {})
    try:
        yield
    finally:
        unregister_provider("cuda")
        for name, original in originals.items():
            setattr(CudaProvider, name, original)


class _Build:
    """One build of a model in one mode."""

    def __init__(self, model: CudaModel, mode: str, folder: Path, record: CudaRecord) -> None:
        self._model, self._mode, self._folder, self._record = model, mode, folder, record
        self._log = _Log()

    def run(self) -> dict[str, Any]:
        """Build, and return every decision: steps, tuning, partitions, messages and the error."""
        self._record.partitions.clear()
        content: dict[str, Any] = {}
        try:
            manifest = self._tune() if self._mode == "tuned" else self._build()
            content["steps"] = [
                f"{step.provider}: {self._record.describe(step.name)}"
                for program in manifest.programs
                for step in program.steps
            ]
            content["tuning"] = self._record.describe_tuning(manifest)
        except dt.DovetailError as error:
            content["error"] = self._record.describe(str(error)).splitlines()
        content["partitions"] = [self._record.describe_partition(built) for built in self._record.partitions]
        content["messages"] = [self._record.describe(line) for line in self._log.lines]
        return content

    def _build(self) -> Any:
        is_target = self._mode == "target"
        options = {"kernel_store": str(self._folder / f"store-{self._mode}")} | (
            {"target": TARGET} if is_target else {}
        )
        config = self._make_config(options, candidate_bytes=self._model.candidate_bytes * is_target)
        registry = Builder(self._log).get_plugin_registry()
        source = import_model(self._model.make(), registry=registry, logger=self._log)
        is_open = self._model.shapes is None and not is_target
        built = Builder(self._log).build_plan(source, config, is_open=is_open)
        if is_target:
            write_plan(self._folder / "target.plan", encode_manifest(built.manifest), built.blobs)
        return built.manifest

    def _tune(self) -> Any:
        config = self._make_config({}, candidate_bytes=0)
        return tune_plan(self._folder / "target.plan", self._folder / "tuned.plan", config, self._log).manifest

    def _make_config(self, options: dict[str, str], *, candidate_bytes: int) -> Any:
        config = dt.BuilderConfig()
        config.providers = ["cuda", "cpu"]
        config.provider_options = {"cuda": {**self._model.options, **options}}
        config.aliases = dict(self._model.aliases)
        config.candidate_bytes = candidate_bytes
        cache = _HashTimingCache()
        cache.prefers_libraries = candidate_bytes == 0
        config.set_timing_cache(cache, ignore_mismatch=True)
        if self._model.precision is not None:
            config.precision = self._model.precision()
        if self._model.shapes:
            config.add_optimization_profile(dt.profile_from_shapes(self._model.shapes))
        return config
