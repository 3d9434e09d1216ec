"""The embedded back end: NumPy reference kernels on host memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dovetail._version import __version__
from dovetail.allocators import HostAllocator, IGpuAllocator
from dovetail.errors import ProviderError
from dovetail.near_names import suggest
from dovetail.provider.devices import Device
from dovetail.provider.host import host_device
from dovetail.provider.interfaces import API_VERSION, CompiledKernel, Provider, StoredKernel
from dovetail.provider.kernels import Kernel, KernelRegistry
from dovetail.providers.cpu._numeric import NARROW_FLOATS, NATIVE, plain_kernel
from dovetail.providers.cpu.registry import registry

__all__ = ["CpuProvider", "CpuProviderFactory", "create_factory"]


class CpuProvider(Provider):
    """Runs every step with NumPy, one after the other."""

    name = "cpu"

    def __init__(self, device: Device, *, layout: str = "NCHW") -> None:
        self.device = device
        self.preferred_layout = layout
        self._allocator = HostAllocator()

    @property
    def kernels(self) -> KernelRegistry:
        """The NumPy kernels."""
        return registry

    @property
    def allocator(self) -> IGpuAllocator:
        """Memory of the process."""
        return self._allocator

    def load_kernel(self, stored: StoredKernel) -> CompiledKernel:
        """The kernel with its attributes bound; without narrow floats its widening is left out."""
        kernel, types = self._find(stored.op, stored.domain, stored.opset), stored.input_types
        plain = None if any(name in NARROW_FLOATS for name in types) else plain_kernel(kernel.function)
        is_native = all(name is None or name in NATIVE for name in types)
        write = kernel.bind_into(stored.attributes, stored.num_outputs) if is_native else None
        return CompiledKernel(kernel.bind(stored.attributes, stored.num_outputs, function=plain), write)

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
        return [host_device()]

    def create(self, device: Device, options: Mapping[str, str]) -> CpuProvider:
        """A provider; the option ``layout`` is ``NCHW`` or ``NHWC``."""
        unknown = options.keys() - {"layout"}
        if unknown:
            what = f"unknown option(s) {', '.join(sorted(unknown))}"
            raise ProviderError(what, where="provider 'cpu'", expected="layout", fix=suggest(min(unknown), ["layout"]))
        layout = options.get("layout", "NCHW")
        if layout not in ("NCHW", "NHWC"):
            raise ProviderError("no such layout", where="provider 'cpu'", expected="NCHW or NHWC", got=layout)
        return CpuProvider(device, layout=layout)


def create_factory() -> CpuProviderFactory:
    """What the loader calls."""
    return CpuProviderFactory()
