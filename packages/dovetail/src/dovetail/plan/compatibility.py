"""Whether a plan is as good here as where it was made: optimal, usable, or to be built again, and why.

The policy behind the answer is in docs/plan-versions.md. Everything is read from the file; plugins are named, not run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from dovetail.errors import DovetailError, PlanCorruptError, PlanDeviceMismatchError, PlanVersionError, ProviderError
from dovetail.plan.carried import count_carried
from dovetail.plan.container import PlanFile
from dovetail.plan.inspect import find_damage, plugins_of
from dovetail.plan.manifest import DeviceRecord, Manifest, ProgramRecord, StepRecord, decode_manifest
from dovetail.plan.untimed import describe_untimed
from dovetail.plan.verify.manifest_rules import verify_manifest
from dovetail.provider.interfaces import ProviderFactory
from dovetail.provider.loader import get_factory, get_provider, split_id

__all__ = ["PlanReport", "Verdict", "check_plan", "judge_devices"]

Verdict = Literal["optimal", "usable", "rebuild"]


@dataclass(frozen=True, kw_only=True)
class PlanReport:
    """The answer: a verdict, the reasons for it, and what else loading will ask for."""

    verdict: Verdict
    reasons: list[str]
    notes: list[str] = field(default_factory=list)


def check_plan(path: str | os.PathLike[str]) -> PlanReport:
    """Judge a plan file for this machine and this version.

    Raises:
        PlanError: There is no such file, or it cannot be read at all.
    """
    try:
        file = PlanFile.open(path)
    except (PlanCorruptError, PlanVersionError) as error:
        if not Path(path).is_file():
            raise
        return _rebuild(error)
    with file:
        try:
            manifest = decode_manifest(file.manifest)
            verify_manifest(manifest, file)
        except (PlanCorruptError, PlanVersionError, PlanDeviceMismatchError) as error:
            return _rebuild(error)
        damaged = find_damage(manifest, file)
    if damaged:
        return PlanReport(verdict="rebuild", reasons=[f"the file is damaged: {name}" for name in damaged])
    return _judge(manifest)


def _rebuild(error: DovetailError) -> PlanReport:
    return PlanReport(verdict="rebuild", reasons=[str(error).partition("\n")[0]])


def _judge(manifest: Manifest) -> PlanReport:
    report = judge_devices(manifest.devices)
    notes = list(_notes(manifest))
    if report.verdict != "rebuild":
        missing = [text for device in manifest.devices for text in _missing_kernels(device.provider, manifest)]
        if missing:
            return PlanReport(verdict="rebuild", reasons=missing, notes=notes)
    untimed = describe_untimed(manifest)
    if untimed is not None and report.verdict != "rebuild":
        differences = report.reasons if report.verdict == "usable" else []
        return PlanReport(verdict="usable", reasons=[*differences, f"{untimed}; others may be faster"], notes=notes)
    return PlanReport(verdict=report.verdict, reasons=report.reasons, notes=notes)


def judge_devices(devices: Sequence[DeviceRecord]) -> PlanReport:
    """Judge where a plan was tuned against what there is here, as far as that can be said without the plan."""
    obstacles, differences = [], []
    for device in devices:
        try:
            factory = get_factory(device.provider)
        except ProviderError as error:
            obstacles.append(str(error).partition("\n")[0])
            continue
        obstacles += _obstacles(device, factory)
        differences += _differences(device, factory)
    if obstacles:
        return PlanReport(verdict="rebuild", reasons=obstacles)
    if differences:
        return PlanReport(verdict="usable", reasons=differences)
    here = ", ".join(f"{device.provider} ({device.name})" for device in devices)
    return PlanReport(verdict="optimal", reasons=[f"tuned for this device: {here}"])


def _obstacles(device: DeviceRecord, factory: ProviderFactory) -> list[str]:
    if _major(device.version) != _major(factory.version):
        text = f"made with version {device.version} of provider '{device.provider}', and here is {factory.version}"
        return [f"{text}: another major version"]
    _, ordinal = split_id(device.provider)
    if not any(found.ordinal == ordinal for found in factory.devices()):
        return [f"provider '{device.provider}' finds no device here"]
    return []


def _missing_kernels(provider: str, manifest: Manifest) -> list[str]:
    kernels = get_provider(provider).kernels
    wanted = {
        (step.op, step.domain, step.opset)
        for step in _steps(manifest.programs)
        if step.kind == "kernel" and step.provider == provider
    }
    missing = sorted(key for key in wanted if kernels.find(*key) is None)
    return [
        f"provider '{provider}' has no kernel for {domain or 'ai.onnx'}::{op} at opset {opset}"
        for op, domain, opset in missing
    ]


def _differences(device: DeviceRecord, factory: ProviderFactory) -> list[str]:
    found = []
    here = factory.devices()
    if device.fingerprint not in {other.fingerprint for other in here}:
        names = ", ".join(other.name for other in here)
        found.append(
            f"tuned on another device ({device.name}), and here is {names}: the tactics are right, "
            "but others may be faster"
        )
    if device.version != factory.version:
        found.append(
            f"tuned with version {device.version} of provider '{device.provider}', and here is {factory.version}"
        )
    return found


def _notes(manifest: Manifest) -> Iterator[str]:
    for name, version, namespace in plugins_of(manifest):
        place = f" in namespace '{namespace}'" if namespace else ""
        yield f"needs the plugin '{name}' version '{version}'{place}"
    for library in manifest.libraries:
        yield f"carries the plugin library '{library.name}', which is host code: loading it must be allowed"
    code = sum(record.kind == "kernel" for record in manifest.blobs.values())
    if code:
        yield f"carries {code} piece(s) of device code: loading it can be refused"
    if count_carried(manifest):
        yield "carries candidates: 'dovetail tune' chooses between them on the device"
    stripped = sum(record.stripped and name not in manifest.packed for name, record in manifest.blobs.items())
    if stripped:
        yield f"{stripped} weight(s) are stripped: refit the engine before it runs"


def _steps(programs: Sequence[ProgramRecord]) -> Iterator[StepRecord]:
    for program in programs:
        for step in program.steps:
            yield step
            yield from _steps(step.bodies)


def _major(version: str) -> str:
    return version.partition(".")[0]
