"""The CPU of this machine as a device, for every provider that runs on it."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from pathlib import Path

from dovetail.provider.devices import Device

__all__ = ["host_device"]


@cache
def host_device() -> Device:
    """The one CPU; its fingerprint is that of its model and system."""
    model = _cpu_model()
    digest = hashlib.sha256(f"{model}|{platform.machine()}|{platform.system()}".encode()).hexdigest()
    return Device(name=model, kind="cpu", fingerprint=digest[:16])


def _cpu_model() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
            names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
            return next(names, platform.machine())
    except OSError:
        return platform.processor() or platform.machine()
