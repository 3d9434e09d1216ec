"""The CPU of this machine as a device, for every provider that runs on it."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from pathlib import Path

from dovetail.provider.devices import Device

__all__ = ["host_device", "saturates_bytes"]


@cache
def host_device() -> Device:
    """The one CPU; its fingerprint is that of its model and system."""
    model = _cpu_model()
    digest = hashlib.sha256(f"{model}|{platform.machine()}|{platform.system()}".encode()).hexdigest()
    return Device(name=model, kind="cpu", fingerprint=digest[:16])


@cache
def saturates_bytes() -> bool:
    """Whether products of bytes may be added in 16 bits here: on x86 without VNNI, or where that cannot be told.

    Libraries that use such instructions give wrong sums for large weights of eight bits.
    """
    if platform.machine().lower() not in ("x86_64", "amd64", "i386", "i686"):
        return False
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    return not {"avx512_vnni", "avx_vnni"}.intersection(text.split())


def _cpu_model() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
            names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
            return next(names, platform.machine())
    except OSError:
        return platform.processor() or platform.machine()
