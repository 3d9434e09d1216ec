"""Installed packages in a folder: real dist-info metadata with entry points, and a module beside it."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

__all__ = ["PROVIDER_MODULE", "install"]

PROVIDER_MODULE = """
from dovetail.provider.interfaces import API_VERSION, Device, Provider
from dovetail.provider.kernels import KernelRegistry

class Small(Provider):
    name = "{name}"

    def __init__(self, device, options):
        self.device = device
        self.options = options
        self._kernels = KernelRegistry("{name}")

    @property
    def kernels(self):
        return self._kernels

class Factory:
    name = "{name}"
    version = "7.8"
    api_version = API_VERSION

    def devices(self):
        return [Device(name="a device", kind="npu", fingerprint="f")]

    def create(self, device, options):
        return Small(device, options)

def create_factory():
    return Factory()
"""
"""A provider that keeps the contract and has no kernels."""


def install(
    folder: Path, distribution: str, entry_points: dict[str, dict[str, str]], modules: dict[str, str] | None = None
) -> None:
    """Write a distribution of version 1.2 and its modules.

    Args:
        folder: Where, as a folder of ``sys.path``.
        distribution: What it is called.
        entry_points: Group -> name -> target.
        modules: Name of a module -> its text.
    """
    info = folder / f"{distribution.replace('-', '_')}-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n", encoding="utf-8")
    lines = []
    for group, entries in entry_points.items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name, text in (modules or {}).items():
        (folder / f"{name}.py").write_text(dedent(text), encoding="utf-8")
