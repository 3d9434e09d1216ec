"""The devices that a plan was tuned for."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.plan.manifest import DeviceRecord, ProgramRecord
from dovetail.plan.walk import walk_steps
from dovetail.provider.interfaces import Provider
from dovetail.provider.loader import get_factory

__all__ = ["device_record", "device_records", "uses_devices"]


def uses_devices(programs: Sequence[ProgramRecord], providers: Sequence[Provider]) -> bool:
    """Whether a step runs in memory that is not the host's."""
    used = _used_providers(programs)
    return any(provider.id in used and not provider.memory.is_host for provider in providers)


def device_records(programs: Sequence[ProgramRecord], providers: Sequence[Provider]) -> list[DeviceRecord]:
    """The providers that have a step, and the host's first: it runs copies and control flow."""
    used = _used_providers(programs)
    kept = [p for p in reversed(providers) if p.id in used or p is providers[-1]]
    return [device_record(provider) for provider in kept]


def _used_providers(programs: Sequence[ProgramRecord]) -> set[str]:
    return {step.provider for program in programs for step in walk_steps(program)}


def device_record(provider: Provider) -> DeviceRecord:
    """The device of a provider, as a plan names where it was tuned."""
    device = provider.device
    return DeviceRecord(
        provider=provider.id,
        name=device.name,
        fingerprint=device.fingerprint,
        version=get_factory(provider.name).version,
    )
