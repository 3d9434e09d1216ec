"""Choosing between the candidates that a plan carries, on the machine that has its device.

Neither the model is needed nor anything that builds: the provider times its compiled candidates with the tuner of every
build, and the plan is written again with what was chosen, its memory placed anew, and without the candidates.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np

from dovetail.build.built_checks import StepOwner, check_bytes, check_text, check_workspace, report_record
from dovetail.build.config import BuilderConfig, MemoryPoolType
from dovetail.build.device_records import device_record
from dovetail.build.lower.memory.arena_plan import plan_memory
from dovetail.build.progress import Phases
from dovetail.build.provider_progress import ProviderProgress
from dovetail.build.request import BuiltPlan
from dovetail.build.tune.providers import ProviderTuner, TuningTables
from dovetail.build.tune.session import CacheSession
from dovetail.build.tune.tuner import CandidateTuner, tuner_options
from dovetail.decoding import judging
from dovetail.errors import PlanCorruptError, ProviderError, UsageError
from dovetail.loggers import ILogger, Logger
from dovetail.plan.carried import count_carried, find_step_blobs
from dovetail.plan.container import Blob, PlanFile, write_plan
from dovetail.plan.manifest import (
    LayerRecord,
    Manifest,
    PartitionRecord,
    ProgramRecord,
    StepRecord,
    ValueRecord,
    decode_manifest,
    encode_manifest,
)
from dovetail.plan.untimed import describe_untimed
from dovetail.plan.verify.manifest_rules import verify_manifest
from dovetail.plan.walk import walk_steps
from dovetail.provider.calls import call
from dovetail.provider.interfaces import Provider, StoredCandidates, StoredPartition, TuneContext, TunedPartition
from dovetail.provider.options import ProviderOptions, Providers
from dovetail.runtime.bind.partitions import find_border, make_stored
from dovetail.runtime.memory.blobs import BlobStore
from dovetail.runtime.save import make_blob, record_blob

__all__ = ["TunedPlan", "tune", "tune_plan"]

_MAX_BLOB_NAME: Final = 1000


@dataclass(frozen=True, kw_only=True)
class TunedPlan:
    """What came of tuning a plan."""

    manifest: Manifest
    num_partitions: int
    """How many partitions had candidates; none where the plan was tuned before."""


def tune(
    plan: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    timing_cache: str | os.PathLike[str] | None = None,
    provider_options: ProviderOptions | None = None,
    logger: ILogger | None = None,
) -> None:
    """Choose between the candidates that a plan carries, by timing them here, and write the plan with what was chosen.

    The device code of the candidates runs, as that of a plan does when it is loaded. A plan that is tuned already stays
    as it is.

    Args:
        plan: A plan that was built with candidates to carry (``config.candidate_bytes``, ``--carry-candidates``).
        output: Where to write the tuned plan; by default in the place of the plan.
        timing_cache: A file of timings, shared with builds and other machines.
        provider_options: Provider -> its options.
        logger: Where messages go.

    Raises:
        UsageError: Choices were not timed, and the plan carries no candidates for them.
        PlanError: The file is no plan, or is damaged.
        ProviderError: The device is not here, or the candidates are not for it.
        BuildError: No candidate works.
    """
    config = BuilderConfig()
    config.timing_cache_path = timing_cache
    config.provider_options = {name: dict(chosen) for name, chosen in (provider_options or {}).items()}
    tune_plan(plan, plan if output is None else output, config, logger or Logger())


def tune_plan(
    source: str | os.PathLike[str], target: str | os.PathLike[str], config: BuilderConfig, logger: ILogger
) -> TunedPlan:
    """Do as ``tune`` does by a configuration, and return what the new plan says."""
    with PlanFile.open(source) as file, judging(_unusable):
        tuner = _PlanTuner(file, config, logger)
        try:
            built = tuner.tune()
        finally:
            tuner.close()
        write_plan(target, encode_manifest(built.manifest), built.blobs)
    return TunedPlan(manifest=built.manifest, num_partitions=tuner.num_partitions)


def _unusable(reason: str) -> PlanCorruptError:
    return PlanCorruptError(f"the plan cannot be used: {reason}", fix="build the plan again")


class _PlanTuner:
    """Tunes the partitions of one plan, one after the other."""

    def __init__(self, file: PlanFile, config: BuilderConfig, logger: ILogger) -> None:
        self._file = file
        self._manifest = _read(file)
        self._blobs = BlobStore(self._manifest.blobs, file)
        self._providers = Providers(config.provider_options, logger)
        self._logger = logger
        self._workspace_limit = config.get_memory_pool_limit(MemoryPoolType.WORKSPACE)
        self._phases = Phases(config.progress_monitor)
        self._session = CacheSession(config, logger)
        self._tuner = CandidateTuner(tuner_options(config), self._session, logger, self._phases)
        self._tables = TuningTables()
        self._made: dict[str, tuple[bytes, str]] = {}
        """Blobs that were made now, and their kinds."""
        self._replaced = _find_replaced(self._manifest)
        self._tuned: dict[str, Provider] = {}
        self.num_partitions = 0
        """How many were tuned so far."""

    def close(self) -> None:
        """End the tuner, and keep its timings."""
        self._tuner.close()
        self._session.close()

    def tune(self) -> BuiltPlan:
        """The parts of the new plan."""
        programs = [self._tune_program(program, number) for number, program in enumerate(self._manifest.programs)]
        placed = programs if self._manifest.open else [plan_memory(program) for program in programs]
        devices = {name: device_record(provider) for name, provider in self._tuned.items()}
        manifest = msgspec.structs.replace(
            self._manifest,
            programs=placed,
            devices=[devices.get(record.provider, record) for record in self._manifest.devices],
            tuning=_merge_tables(self._manifest.tuning, self._tables.records),
        )
        return self._store(manifest)

    # steps

    def _tune_program(self, program: ProgramRecord, profile: int) -> ProgramRecord:
        steps = [self._tune_step(step, program.values, profile) for step in program.steps]
        return msgspec.structs.replace(program, steps=steps)

    def _tune_step(self, step: StepRecord, values: Sequence[ValueRecord], profile: int) -> StepRecord:
        bodies = [self._tune_program(body, profile) for body in step.bodies]
        if step.partition is None or step.partition.candidates is None:
            return msgspec.structs.replace(step, bodies=bodies)
        owner = StepOwner(provider=self._find_provider(step.provider), name=step.name)
        tuned = self._ask(owner, self._load(step, step.partition, values), profile)
        self.num_partitions += 1
        workspace_bytes = check_workspace(owner, tuned.workspace_bytes, self._workspace_limit)
        partition = self._record(owner, step.partition, tuned)
        return msgspec.structs.replace(step, partition=partition, workspace_bytes=workspace_bytes, bodies=bodies)

    def _find_provider(self, name: str) -> Provider:
        provider = self._providers[name]
        if not provider.is_here:
            raise ProviderError(
                "its device is not here, so that nothing can be timed",
                where=f"provider '{name}'",
                got=provider.device.name,
                fix="tune the plan where the device is, without the option 'target'",
            )
        self._tuned[name] = provider
        return provider

    def _load(self, step: StepRecord, record: PartitionRecord, values: Sequence[ValueRecord]) -> StoredPartition:
        carried, load = record.candidates, self._blobs.array
        assert carried is not None  # noqa: S101 - the others are not tuned
        code = {name: load(blob).data for name, blob in carried.code.items()}
        candidates = StoredCandidates(payload=load(carried.payload).data, code=code)
        return replace(make_stored(step, record, load, find_border(step, values)), candidates=candidates)

    def _ask(self, owner: StepOwner, stored: StoredPartition, profile: int) -> TunedPartition:
        provider = owner.provider
        with ProviderProgress(self._phases, f"{provider.id}: {owner.name}") as progress:
            context = TuneContext(
                device=provider.device,
                tuner=ProviderTuner(provider, self._tuner, self._tables, profile=profile),
                logger=self._logger,
                report=progress.report,
            )
            tuned: Any = call(
                provider.id, f"tune_partition of step '{stored.name}'", provider.tune_partition, stored, context
            )
        if not isinstance(tuned, TunedPartition):
            got = type(tuned).__name__
            raise ProviderError("tune_partition gave no partition", where=owner.where, got=got)
        return tuned

    def _record(self, owner: StepOwner, record: PartitionRecord, tuned: TunedPartition) -> PartitionRecord:
        return msgspec.structs.replace(
            record,
            payload=self._add_blob(record.payload, check_bytes(tuned.payload, "the payload", owner), "payload"),
            code=self._record_code(owner, record, tuned),
            report=report_record(owner, tuned.report),
            candidates=None,
        )

    def _record_code(self, owner: StepOwner, record: PartitionRecord, tuned: TunedPartition) -> dict[str, str]:
        """The blobs of the device code that was chosen, and of what was made for it here."""
        known = record.code if record.candidates is None else {**record.code, **record.candidates.code}
        missing = [name for name in tuned.code if name not in known]
        doubled = [name for name in tuned.added if name in known]
        if missing or doubled:
            what = "it chose device code that the plan does not have" if missing else "two pieces of code have one name"
            raise ProviderError(what, where=owner.where, got=ascii((missing + doubled)[0])[:60])
        made = {
            check_text(name, "a name of device code", owner): self._add_blob(
                f"code:{name}"[:_MAX_BLOB_NAME], check_bytes(code, f"device code '{name}'", owner), "kernel"
            )
            for name, code in tuned.added.items()
        }
        return {**{name: known[name] for name in tuned.code}, **made}

    # blobs

    def _add_blob(self, name: str, data: bytes, kind: str) -> str:
        """A blob for what was made now; what several programs share is stored once."""
        unique, count = name, 1
        while not self._is_free(unique, data, kind):
            unique, count = f"{name}.{count}", count + 1
        self._made[unique] = (data, kind)
        return unique

    def _is_free(self, name: str, data: bytes, kind: str) -> bool:
        """Whether a blob may have the name: nobody has it, this very blob has it, or a payload that is replaced."""
        if name in self._made:
            return self._made[name] == (data, kind)
        return name not in self._manifest.blobs or (kind == "payload" and name in self._replaced)

    def _store(self, manifest: Manifest) -> BuiltPlan:
        """The manifest with its blobs: payloads as they are now, and no code that nothing runs with."""
        used, blobs, records = find_step_blobs(manifest), [], {}
        for name in sorted({*manifest.blobs, *self._made}):
            if name in self._made:
                data, kind = self._made[name]
                blobs.append(make_blob(name, np.frombuffer(data, np.uint8)))
                records[name] = record_blob(blobs[-1], np.frombuffer(data, np.uint8), kind=kind)
            elif manifest.blobs[name].kind not in ("kernel", "payload") or name in used:
                blobs += [] if manifest.blobs[name].stripped else [self._copy(name)]
                records[name] = manifest.blobs[name]
        return BuiltPlan(msgspec.structs.replace(manifest, blobs=records), blobs)

    def _copy(self, name: str) -> Blob:
        info = self._file.blobs[name]
        return Blob(name=name, dtype=info.dtype, shape=tuple(info.shape), data=self._file.blob(name))


def _read(file: PlanFile) -> Manifest:
    """What the plan says, which must be right; choices that were not timed must have candidates."""
    manifest = decode_manifest(file.manifest)
    verify_manifest(manifest, file)
    file.verify_padding()
    untimed = describe_untimed(manifest)
    if untimed is not None and not count_carried(manifest):
        raise UsageError(
            f"{untimed}, and it carries no candidates",
            where=f"plan '{manifest.name[:200]}'",
            fix="build it with --carry-candidates, or build it from its model here, with --if-untuned",
        )
    return manifest


def _find_replaced(manifest: Manifest) -> frozenset[str]:
    """The payloads of partitions that are tuned; no step has them afterwards."""
    steps = [step for program in manifest.programs for step in walk_steps(program)]
    partitions = [step.partition for step in steps if step.partition is not None]
    tuned = {record.payload for record in partitions if record.candidates is not None}
    kept = {record.payload for record in partitions if record.candidates is None}
    return frozenset(tuned - kept - {step.kernel.payload for step in steps if step.kernel is not None})


def _merge_tables(before: Sequence[LayerRecord], now: Sequence[LayerRecord]) -> list[LayerRecord]:
    """The tables of a plan, with those that were made anew in their places and further ones behind."""
    made = {(table.profile, table.name): table for table in now}
    kept = [made.pop((table.profile, table.name), table) for table in before]
    return [*kept, *made.values()]
