"""The devices that a plan was tuned for."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.plan.manifest import DeviceRecord, ProgramRecord
from dovetail.plan.walk import walk_steps
from dovetail.provider.interfaces import Provider
from dovetail.provider.loader import get_factory

__all__ = ["device_record", "device_records"]


def device_records(
    programs: Sequence[ProgramRecord], providers: Sequence[Provider], preferred: Provider
) -> list[DeviceRecord]:
    """Return the providers of an engine, the host's first: it runs copies and control flow.

    Args:
        programs: One for each profile.
        providers: The providers of the build, the host's last.
        preferred: The first provider in the caller's order. If it has memory of its own, it is listed even if every
            step fell back to the host: the engine belongs to its device, and its streams are accepted.
    """
    used = {step.provider for program in programs for step in walk_steps(program)}
    if not preferred.memory.is_host:
        used.add(preferred.id)
    kept = [p for p in reversed(providers) if p.id in used or p is providers[-1]]
    return [device_record(provider) for provider in kept]


def device_record(provider: Provider) -> DeviceRecord:
    """The device of a provider, as a plan names where it was tuned."""
    device = provider.device
    return DeviceRecord(
        provider=provider.id,
        name=device.name,
        fingerprint=device.fingerprint,
        version=get_factory(provider.name).version,
    )
