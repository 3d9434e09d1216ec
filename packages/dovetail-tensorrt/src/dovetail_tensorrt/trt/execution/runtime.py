"""The runtime: engines from plans."""

from __future__ import annotations

import tempfile
from typing import Any

import dovetail
from dovetail_tensorrt.cudart import DEVICE_OPTIONS, uses_device
from dovetail_tensorrt.trt.answers import DeviceObject
from dovetail_tensorrt.trt.enums import TempfileControlFlag
from dovetail_tensorrt.trt.execution.allocators import GuardedAllocator
from dovetail_tensorrt.trt.execution.engine import ICudaEngine
from dovetail_tensorrt.trt.execution.streams import IStreamReader, IStreamReaderV2, read_all
from dovetail_tensorrt.trt.registry import IPluginRegistry

__all__ = ["Runtime"]


class Runtime(DeviceObject):
    """Loads plans.

    Args:
        logger: Where messages go.
    """

    __slots__ = (
        "DLA_core",
        "_allocator",
        "_core",
        "_registry",
        "max_threads",
        "tempfile_control_flags",
        "temporary_directory",
    )

    def __init__(self, logger: dovetail.ILogger) -> None:
        super().__init__(logger)
        options = DEVICE_OPTIONS if uses_device() else None
        self._core = dovetail.Runtime(self._reporter.logger, provider_options=options)
        self._registry = IPluginRegistry(self._core.get_plugin_registry(), self._reporter)
        self._allocator: dovetail.IGpuAllocator | None = None
        self.DLA_core = -1
        self.max_threads = 1
        self.temporary_directory = tempfile.gettempdir()
        self.tempfile_control_flags = (
            1 << TempfileControlFlag.ALLOW_IN_MEMORY_FILES | 1 << TempfileControlFlag.ALLOW_TEMPORARY_FILES
        )

    @property
    def engine_host_code_allowed(self) -> bool:
        """Whether a plugin library carried in a plan may be imported."""
        return self._core.engine_host_code_allowed

    @engine_host_code_allowed.setter
    def engine_host_code_allowed(self, value: bool) -> None:
        self._core.engine_host_code_allowed = bool(value)

    @property
    def gpu_allocator(self) -> dovetail.IGpuAllocator | None:
        """What contexts of engines loaded from now on take their memory from."""
        return self._allocator

    @gpu_allocator.setter
    def gpu_allocator(self, allocator: dovetail.IGpuAllocator | None) -> None:
        self._allocator = allocator
        self._core.gpu_allocator = None if allocator is None else GuardedAllocator(allocator)

    def get_plugin_registry(self) -> IPluginRegistry:
        """The registry of this runtime."""
        return self._registry

    def deserialize_cuda_engine(
        self, serialized_engine: Any = None, *, stream_reader: Any = None
    ) -> ICudaEngine | None:
        """An engine from the bytes of a plan or from a stream reader; None when it is not usable."""
        source = stream_reader if stream_reader is not None else serialized_engine

        def load() -> ICudaEngine:
            is_stream = isinstance(source, IStreamReader | IStreamReaderV2)
            data = read_all(source) if is_stream else source
            return ICudaEngine(self._core.deserialize_cuda_engine(data), self._reporter)

        return self._reporter.attempt("Runtime.deserialize_cuda_engine", load, None)

    def load_runtime(self, path: str) -> None:
        """None: there are no runtimes of other versions to load; plans of older ones are read by this one."""
        self._reporter.refuse("Runtime.load_runtime", f"'{path}' is not loaded: this runtime reads all its plans")
