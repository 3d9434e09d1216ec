"""A provider whose kernels are wrong or crash on purpose, for tests of the tools that find such things."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import erf
from typing import Any

import numpy as np

from dovetail.provider.interfaces import API_VERSION, CompiledKernel, Device, Provider, StoredKernel
from dovetail.provider.kernels import KernelRegistry
from dovetail.provider.loader import register_provider, unregister_provider

__all__ = ["broken_provider", "wrong_gelu_kernels"]

FLOATS = ("float32",)


class _BrokenProvider(Provider):
    def __init__(self, name: str, registry: KernelRegistry) -> None:
        self.name = name
        self.device = Device(name="broken", kind="cpu", fingerprint="broken")
        self._registry = registry

    @property
    def kernels(self) -> KernelRegistry:
        return self._registry

    def load_kernel(self, stored: StoredKernel) -> CompiledKernel:
        kernel = self._registry.find(stored.op, stored.domain, stored.opset)
        assert kernel is not None
        return CompiledKernel(kernel.bind(stored.attributes, stored.num_outputs))


class _BrokenFactory:
    version = "1.0"
    api_version = API_VERSION

    def __init__(self, name: str, registry: KernelRegistry) -> None:
        self.name = name
        self._registry = registry

    def devices(self) -> list[Device]:
        return [Device(name="broken", kind="cpu", fingerprint="broken")]

    def create(self, device: Device, options: Mapping[str, str]) -> Provider:
        return _BrokenProvider(self.name, self._registry)


@contextmanager
def broken_provider(kernels: Mapping[str, Callable[..., Any]], name: str = "broken") -> Iterator[list[str]]:
    """Register a provider with these kernels by op, and give the providers to build with."""
    registry = KernelRegistry(name)
    for op, function in kernels.items():
        registry.register(op, since=1, types={"T": FLOATS})(function)
    register_provider(_BrokenFactory(name, registry))
    try:
        yield [name, "cpu"]
    finally:
        unregister_provider(name)


def wrong_gelu_kernels() -> dict[str, Callable[..., Any]]:
    """All that the pattern of GELU is made of, computed right, and GELU itself, which only a fusion makes, wrong."""

    def wrong_gelu(x: Any, *, approximate: str = "none") -> Any:
        return x * 0 + np.float32(0.25)

    return {
        "Gelu": wrong_gelu,
        "Div": lambda a, b: a / b,
        "Erf": lambda x: np.vectorize(erf, otypes=[np.float32])(x),
        "Add": lambda a, b: a + b,
        "Mul": lambda a, b: a * b,
        "Relu": lambda x: np.maximum(x, 0),
    }
