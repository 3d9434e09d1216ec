"""Whose memory an address is, and the CUDA device that runs kernels over it.

For memory of the host there is no device, and plugins compute on the host; ``dovetail-cuda`` is not needed then.
Kernels are compiled by Triton when a device first needs them, and kept in the store of ``dovetail-cuda``.
"""

from __future__ import annotations

import dataclasses
import struct
import threading
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np

from dovetail.errors import PluginError
from dovetail.plugin.arrays import address_of
from dovetail_tensorrt.builtin.device.launch import Argument, DeviceBuffer, HostConstant, KernelLaunch, make_request

if TYPE_CHECKING:
    from dovetail_cuda.compile.request import CompiledCode, KernelRequest
    from dovetail_cuda.run.driver import Driver, Launch

__all__ = ["CudaDevice", "find_device"]

_WHERE: Final = "built-in plugins on CUDA"
_WARP: Final = 32
_ALIGNMENT_BYTES: Final = 16
_MAX_GRID: Final = (2**31 - 1, 65535, 65535)


def find_device(stream: int, addresses: Iterable[int]) -> CudaDevice | None:
    """The device in whose memory the addresses are; None for memory of the host, which has no stream.

    Raises:
        PluginError: The memory is of a device that is not CUDA's.
    """
    address = next((address for address in addresses if address), 0)
    if not stream or not address:
        return None
    driver = _find_driver()
    ordinal = None if driver is None else driver.find_device_of(address)
    if ordinal is None:
        raise PluginError(
            "a built-in plugin is on a device that it has no kernels for",
            where=_WHERE,
            expected="memory of the host or of a CUDA device",
            fix="keep the layer on the host: config.layer_providers = {'name of the layer': 'cpu'}",
        )
    return _open_device(ordinal)


@cache
def _find_driver() -> Driver | None:
    try:
        from dovetail_cuda.run.driver import Driver
    except ImportError:
        return None
    driver = Driver()
    return driver if driver.count_devices() else None


@cache
def _open_device(ordinal: int) -> CudaDevice:
    driver = _find_driver()
    if driver is None:
        raise PluginError("there is no CUDA driver", where=_WHERE)
    return CudaDevice(driver, ordinal)


class CudaDevice:
    """A device with the kernels that were loaded for it.

    Args:
        driver: The driver.
        ordinal: Which of its devices.
    """

    def __init__(self, driver: Driver, ordinal: int) -> None:
        self._driver = driver
        self._context = driver.open_context(ordinal)
        major, minor = driver.describe_device(ordinal).capability
        self._capability = major * 10 + minor
        self._lock = threading.Lock()
        self._loaded: dict[tuple[object, ...], Launch] = {}
        self._constants: dict[HostConstant, int] = {}

    def run(self, launches: Sequence[KernelLaunch], stream: int) -> None:
        """Put kernels on a stream."""
        from dovetail_cuda.run.driver import Parameters

        self._driver.use_context(self._context)
        for launch in launches:
            if 0 not in launch.grid:
                _check(launch)
                parameters = Parameters([self._encode(value) for value in launch.arguments.values()])
                self._driver.launch(self._prepare(launch), parameters, stream)

    def _prepare(self, launch: KernelLaunch) -> Launch:
        """The kernel of a launch, compiled and loaded when it is first needed, with the launch's grid."""
        with self._lock:
            if launch.variant not in self._loaded:
                self._loaded[launch.variant] = self._load(launch)
            return dataclasses.replace(self._loaded[launch.variant], grid=launch.grid)

    def _load(self, launch: KernelLaunch) -> Launch:
        from dovetail_cuda.compile.store import KernelStore, default_folder
        from dovetail_cuda.run.driver import Launch

        made = KernelStore(default_folder(), _compile).get(make_request(launch, self._capability))
        if made.scratch_bytes:
            raise PluginError(f"kernel {launch.function} needs scratch memory", where=_WHERE)
        library = self._driver.load_library(made.code)  # stays for the life of the process, as the device does
        function = self._driver.find_function(library, made.name, made.shared_bytes)
        return Launch(
            function=function, grid=launch.grid, threads=made.num_warps * _WARP, shared_bytes=made.shared_bytes
        )

    def _encode(self, value: Argument) -> int:
        """An argument in eight bytes, of which the driver reads as many as the parameter has."""
        if isinstance(value, DeviceBuffer):
            return value.address
        if isinstance(value, HostConstant):
            return self._upload(value)
        if isinstance(value, float):
            return int.from_bytes(struct.pack("<f", value), "little")
        return value

    def _upload(self, constant: HostConstant) -> int:
        """Where a constant is on the device; it stays there, because captured graphs may read it at any time."""
        with self._lock:
            if constant not in self._constants:
                source = np.frombuffer(constant.data, np.uint8)
                address = self._driver.allocate(max(source.nbytes, 1))
                self._driver.copy(address, address_of(source), source.nbytes, 0)
                self._driver.synchronize_stream(0)
                self._constants[constant] = address
            return self._constants[constant]


def _compile(request: KernelRequest) -> CompiledCode:
    from dovetail_cuda.compile.triton_compiler import compile_kernel

    try:
        return compile_kernel(request)
    except ImportError as error:
        raise PluginError(
            "Triton is not installed, which compiles the kernels of built-in plugins",
            where=_WHERE,
            fix="pip install 'dovetail-cuda[build]', or keep the layer on the host with config.layer_providers",
        ) from error


def _check(launch: KernelLaunch) -> None:
    """Kernels are compiled for aligned buffers, and a grid has limits."""
    for name, value in launch.arguments.items():
        if isinstance(value, DeviceBuffer) and value.address % _ALIGNMENT_BYTES:
            raise PluginError(
                f"buffer '{name}' of kernel {launch.function} is not aligned",
                where=_WHERE,
                expected=f"an address that is a multiple of {_ALIGNMENT_BYTES}",
                got=hex(value.address),
                fix="bind memory as it was allocated, not a part of it",
            )
    if any(size > limit for size, limit in zip(launch.grid, _MAX_GRID, strict=True)):
        raise PluginError(
            f"kernel {launch.function} has too many programs", where=_WHERE, expected=_MAX_GRID, got=launch.grid
        )
