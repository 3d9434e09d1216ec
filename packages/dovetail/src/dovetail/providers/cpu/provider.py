"""The embedded back end: NumPy reference kernels on host memory."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from dovetail._version import __version__
from dovetail.allocators import HostAllocator, IGpuAllocator
from dovetail.errors import ProviderError
from dovetail.provider.devices import Device
from dovetail.provider.interfaces import API_VERSION, Provider, StepFunction
from dovetail.provider.kernels import Kernel, KernelRegistry
from dovetail.providers.cpu._numeric import NARROW_FLOATS, plain_kernel
from dovetail.providers.cpu.kernels import load_kernels
from dovetail.providers.cpu.registry import registry

__all__ = ["CpuProvider", "CpuProviderFactory", "create_factory"]


class CpuProvider(Provider):
    """Runs every step with NumPy, one after the other."""

    name = "cpu"

    def __init__(self, device: Device) -> None:
        load_kernels()
        self.device = device
        self._allocator = HostAllocator()

    @property
    def kernels(self) -> KernelRegistry:
        """The NumPy kernels."""
        return registry

    @property
    def allocator(self) -> IGpuAllocator:
        """Memory of the process."""
        return self._allocator

    def compile(
        self,
        op: str,
        domain: str,
        opset: int,
        attributes: Mapping[str, Any],
        input_types: Sequence[str | None],
        num_outputs: int,
    ) -> StepFunction:
        """The kernel with its attributes bound; without narrow floats its widening is left out."""
        kernel = self._find(op, domain, opset)
        plain = None if any(name in NARROW_FLOATS for name in input_types) else plain_kernel(kernel.function)
        return kernel.bind(attributes, num_outputs, function=plain)

    def _find(self, op: str, domain: str, opset: int) -> Kernel:
        kernel = self.kernels.find(op, domain, opset)
        if kernel is None:
            raise ProviderError(f"no kernel for {domain or 'ai.onnx'}::{op} at opset {opset}", where="provider 'cpu'")
        return kernel


class CpuProviderFactory:
    """The entry point of the embedded back end."""

    name = "cpu"
    version = __version__
    api_version = API_VERSION

    def devices(self) -> Sequence[Device]:
        """The one CPU."""
        return [_cpu_device()]

    def create(self, device: Device, options: Mapping[str, str]) -> CpuProvider:
        """A provider; it has no options."""
        if options:
            raise ProviderError(f"unknown option(s) {', '.join(sorted(options))}", where="provider 'cpu'")
        return CpuProvider(device)


def create_factory() -> CpuProviderFactory:
    """What the loader calls."""
    return CpuProviderFactory()


@cache
def _cpu_device() -> Device:
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
