"""The builder: networks, configurations and profiles, and plans from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import dovetail
from dovetail_tensorrt.cudart import DEVICE_OPTIONS, has_device, uses_device
from dovetail_tensorrt.cudart.devices import can_import
from dovetail_tensorrt.trt.answers import DeviceObject
from dovetail_tensorrt.trt.building.config import IBuilderConfig
from dovetail_tensorrt.trt.building.network import INetworkDefinition
from dovetail_tensorrt.trt.building.profile import IOptimizationProfile
from dovetail_tensorrt.trt.execution.debugging import debug_outputs, find_unfused
from dovetail_tensorrt.trt.execution.engine import ICudaEngine
from dovetail_tensorrt.trt.execution.streams import IStreamWriter, write_all
from dovetail_tensorrt.trt.registry import IPluginRegistry

__all__ = ["Builder"]

T = TypeVar("T")


class Builder(DeviceObject):
    """Where building starts.

    Args:
        logger: Where messages go.
    """

    __slots__ = ("_core", "_registry", "gpu_allocator")

    def __init__(self, logger: dovetail.ILogger) -> None:
        super().__init__(logger)
        self._core = dovetail.Builder(self._reporter.logger)
        self._registry = IPluginRegistry(self._core.get_plugin_registry(), self._reporter)
        self.gpu_allocator: dovetail.IGpuAllocator | None = None
        """Taken and kept; a build allocates with the providers' own."""

    @property
    def max_threads(self) -> int:
        """How many threads a build may use; 1 until somebody says otherwise."""
        return self._core.max_threads or 1

    @max_threads.setter
    def max_threads(self, value: int) -> None:
        if value < 1:
            self._reporter.refuse("Builder.max_threads", f"{value} is no number of threads")
            return
        self._core.max_threads = int(value)

    @property
    def max_DLA_batch_size(self) -> int:  # noqa: N802 - the contract's name
        """0: there is no DLA."""
        return 0

    @property
    def platform_has_tf32(self) -> bool:
        """Whether TF32 is there; of version 10."""
        return has_device()

    @property
    def platform_has_fast_fp16(self) -> bool:
        """True, as on each GPU of version 10: a script that asks takes the same path on a host."""
        return True

    @property
    def platform_has_fast_int8(self) -> bool:
        """True: networks are calibrated and quantized on a host too; of version 10."""
        return True

    def get_plugin_registry(self) -> IPluginRegistry:
        """The registry of this builder."""
        return self._registry

    def reset(self) -> None:
        """Back to the state after it was made."""
        self._reporter.recorder = None
        self.gpu_allocator = None
        self._core.max_threads = 0

    def create_network(self, flags: int = 0) -> INetworkDefinition:
        """An empty network."""
        return INetworkDefinition(self, flags, self._reporter)

    def create_builder_config(self) -> IBuilderConfig:
        """A configuration with the defaults."""
        return IBuilderConfig(self._reporter)

    def create_optimization_profile(self) -> IOptimizationProfile:
        """An empty profile."""
        return IOptimizationProfile()

    def build_serialized_network(
        self, network: INetworkDefinition, config: IBuilderConfig
    ) -> dovetail.IHostMemory | None:
        """A plan, or None; the log says why."""
        return self._build(network, config, self._core.build_serialized_network, "Builder.build_serialized_network")

    def build_engine_with_config(self, network: INetworkDefinition, config: IBuilderConfig) -> ICudaEngine | None:
        """An engine, or None; the log says why."""

        def build(source: dovetail.Network, settings: dovetail.BuilderConfig) -> ICudaEngine:
            return ICudaEngine(self._core.build_engine_with_config(source, settings), self._reporter)

        return self._build(network, config, build, "Builder.build_engine_with_config")

    def build_serialized_network_to_stream(
        self, network: INetworkDefinition, config: IBuilderConfig, writer: IStreamWriter
    ) -> bool:
        """Write a plan to a stream; False when it cannot be built or the writer does not take it."""

        def build(source: dovetail.Network, settings: dovetail.BuilderConfig) -> bool:
            write_all(writer, self._core.build_serialized_network(source, settings))
            return True

        return bool(self._build(network, config, build, "Builder.build_serialized_network_to_stream"))

    def is_network_supported(self, network: INetworkDefinition, config: IBuilderConfig) -> bool:
        """Whether the network can be built; the log says why not."""
        return self.build_serialized_network(network, config) is not None

    def _build(
        self,
        network: INetworkDefinition,
        config: IBuilderConfig,
        build: Callable[[dovetail.Network, dovetail.BuilderConfig], T],
        call: str,
    ) -> T | None:
        def attempt() -> T:
            unfused = self._find_unfused(network, config) if network.watches_unfused else frozenset[str]()
            with debug_outputs(network, unfused):
                return build(network, _find_settings(config))

        return self._reporter.attempt(call, attempt, None)

    def _find_unfused(self, network: INetworkDefinition, config: IBuilderConfig) -> frozenset[str]:
        """The tensors that are still there after a build, before they are watched in another one."""
        return find_unfused(self._core.build_engine_with_config(network, _find_settings(config)))


def _find_settings(config: IBuilderConfig) -> dovetail.BuilderConfig:
    settings = config.to_engine_config()
    if not _uses_device(config):
        return settings
    if settings.providers is None:
        settings.providers = ("cuda", *_default_providers())
    settings.provider_options = {**DEVICE_OPTIONS, **settings.provider_options}
    return settings


def _uses_device(config: IBuilderConfig) -> bool:
    if config.providers is not None:
        return "cuda" in config.providers
    return uses_device()


def _default_providers() -> tuple[str, ...]:
    return ("onnxruntime", "cpu") if can_import("onnxruntime") else ("cpu",)
