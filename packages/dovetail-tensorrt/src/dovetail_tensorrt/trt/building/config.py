"""How to build, as scripts say it; ``to_engine_config`` turns it into the configuration of the engine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import dovetail
from dovetail_tensorrt.trt.answers import DeprecatedContext, Reporter, call_user
from dovetail_tensorrt.trt.building.algorithms import IAlgorithmSelector
from dovetail_tensorrt.trt.building.calibrators import GuardedCalibrator
from dovetail_tensorrt.trt.building.timing_cache import ITimingCache
from dovetail_tensorrt.trt.enums import (
    BuilderFlag,
    DeviceType,
    HardwareCompatibilityLevel,
    PreviewFeature,
    QuantizationFlag,
    RuntimePlatform,
    TacticSource,
    TilingOptimizationLevel,
)

__all__ = ["IBuilderConfig"]

_DEFAULT_FLAGS: Final = 1 << BuilderFlag.TF32
_DEFAULT_SOURCES: Final = 1 << TacticSource.EDGE_MASK_CONVOLUTIONS | 1 << TacticSource.JIT_CONVOLUTIONS
_DEFAULT_POOLS: Final = {dovetail.MemoryPoolType.TACTIC_SHARED_MEMORY: 1 << 30}
_ENGINE_FLAGS: Final = frozenset(flag.name for flag in dovetail.BuilderFlag)
_QUIET_FLAGS: Final = frozenset(
    ("TF32", "GPU_FALLBACK", "EDITABLE_TIMING_CACHE", "VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME", "DIRECT_IO")
)
"""Flags that ask for what is so here without them."""


class IBuilderConfig(DeprecatedContext):
    """All settings of one build; made by ``Builder.create_builder_config``."""

    __slots__ = (
        "DLA_core",
        "_algorithm_selector",
        "_calibration_profile",
        "_device_types",
        "_pools",
        "_previews",
        "_profiles",
        "_reporter",
        "_sources",
        "_timing_cache",
        "avg_timing_iterations",
        "build_route",
        "builder_optimization_level",
        "default_device_type",
        "engine_capability",
        "flags",
        "hardware_compatibility_level",
        "int8_calibrator",
        "l2_limit_for_tiling",
        "max_aux_streams",
        "max_num_tactics",
        "plugins_to_serialize",
        "profile_stream",
        "profiling_verbosity",
        "progress_monitor",
        "providers",
        "quantization_flags",
        "remote_auto_tuning_config",
        "runtime_platform",
        "tiling_optimization_level",
    )

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self.reset()

    def reset(self) -> None:
        """Back to the defaults."""
        self.flags = _DEFAULT_FLAGS
        self.quantization_flags = 0
        """A mask of ``1 << QuantizationFlag``; kept only: ranges are always found before layers are fused."""
        self.avg_timing_iterations = 1
        self.builder_optimization_level = 3
        self.max_num_tactics = -1
        self.max_aux_streams = -1
        self.engine_capability = dovetail.EngineCapability.STANDARD
        self.profiling_verbosity = dovetail.ProfilingVerbosity.LAYER_NAMES_ONLY
        self.hardware_compatibility_level = HardwareCompatibilityLevel.NONE
        self.runtime_platform = RuntimePlatform.SAME_AS_BUILD
        self.tiling_optimization_level = TilingOptimizationLevel.NONE
        self.l2_limit_for_tiling = -1
        self.remote_auto_tuning_config = ""
        self.build_route = ""
        self.profile_stream = 0
        self.default_device_type = DeviceType.GPU
        self.DLA_core = -1
        self.plugins_to_serialize: Sequence[str | os.PathLike[str]] = []
        self.progress_monitor: dovetail.IProgressMonitor | None = None
        self.int8_calibrator: dovetail.IInt8Calibrator | None = None
        """Who gives batches to find INT8 ranges with; of version 10."""
        self.quantization_flags = 0
        """Switches of calibration, kept and without effect; of version 10."""
        self._algorithm_selector: IAlgorithmSelector | None = None
        self.providers: Sequence[str] | None = None
        """Back ends of Dovetail in order of preference; None for the default ones."""
        self._sources = _DEFAULT_SOURCES
        self._pools = dict(_DEFAULT_POOLS)
        self._previews: set[PreviewFeature] = set()
        self._profiles: list[dovetail.OptimizationProfile] = []
        self._calibration_profile: dovetail.OptimizationProfile | None = None
        self._device_types: dict[Any, DeviceType] = {}
        self._timing_cache: ITimingCache | None = None

    def __del__(self) -> None:
        """Nothing: the contract has the name."""

    # flags

    def set_flag(self, flag: BuilderFlag) -> None:
        """Switch a flag on."""
        self.flags |= 1 << BuilderFlag(flag)

    def clear_flag(self, flag: BuilderFlag) -> None:
        """Switch a flag off."""
        self.flags &= ~(1 << BuilderFlag(flag))

    def get_flag(self, flag: BuilderFlag) -> bool:
        """Whether a flag is on."""
        return bool(self.flags >> BuilderFlag(flag) & 1)

    def set_quantization_flag(self, flag: QuantizationFlag) -> None:
        """Switch a flag of calibration on; of version 10."""
        self.quantization_flags |= 1 << QuantizationFlag(flag)

    def clear_quantization_flag(self, flag: QuantizationFlag) -> None:
        """Switch a flag of calibration off; of version 10."""
        self.quantization_flags &= ~(1 << QuantizationFlag(flag))

    def get_quantization_flag(self, flag: QuantizationFlag) -> bool:
        """Whether a flag of calibration is on; of version 10."""
        return bool(self.quantization_flags >> QuantizationFlag(flag) & 1)

    def set_preview_feature(self, feature: PreviewFeature, enable: bool) -> None:
        """Switch a preview feature on or off."""
        (self._previews.add if enable else self._previews.discard)(PreviewFeature(feature))

    def get_preview_feature(self, feature: PreviewFeature) -> bool:
        """Whether a preview feature is on."""
        return PreviewFeature(feature) in self._previews

    @property
    def all_build_routes(self) -> str:
        """The build routes there are: none."""
        return ""

    # limits and sources

    def set_memory_pool_limit(self, pool: dovetail.MemoryPoolType, pool_size: int) -> None:
        """Bound a pool, in bytes."""
        if pool_size < 0:
            self._reporter.refuse("IBuilderConfig.set_memory_pool_limit", f"a limit of {pool_size} bytes is negative")
            return
        self._pools[dovetail.MemoryPoolType(pool)] = int(pool_size)

    def get_memory_pool_limit(self, pool: dovetail.MemoryPoolType) -> int:
        """The bound of a pool, in bytes."""
        kind = dovetail.MemoryPoolType(pool)
        return self._pools.get(kind, dovetail.BuilderConfig().get_memory_pool_limit(kind))

    def set_tactic_sources(self, tactic_sources: int) -> bool:
        """Choose the libraries that tactics come from; stored only: providers have their own."""
        self._sources = int(tactic_sources)
        return True

    def get_tactic_sources(self) -> int:
        """The sources as a mask of ``1 << TacticSource``."""
        return self._sources

    @property
    def algorithm_selector(self) -> IAlgorithmSelector | None:
        """Who would choose algorithms: kept and never asked, as they are chosen by measurement; of version 10."""
        return self._algorithm_selector

    @algorithm_selector.setter
    def algorithm_selector(self, selector: IAlgorithmSelector | None) -> None:
        if selector is not None:
            self._reporter.warn("IBuilderConfig.algorithm_selector is never asked: algorithms are measured")
        self._algorithm_selector = selector

    # profiles

    def add_optimization_profile(self, profile: dovetail.OptimizationProfile) -> int:
        """Add a profile; its number comes back."""
        if not isinstance(profile, dovetail.OptimizationProfile):
            raise TypeError(f"profile must be an IOptimizationProfile, not {type(profile).__name__}")
        self._profiles.append(profile)
        return len(self._profiles) - 1

    @property
    def num_optimization_profiles(self) -> int:
        """How many profiles were added."""
        return len(self._profiles)

    def set_calibration_profile(self, profile: dovetail.OptimizationProfile) -> bool:
        """The profile that calibration batches fit; of version 10."""
        self._calibration_profile = profile
        return True

    def get_calibration_profile(self) -> dovetail.OptimizationProfile | None:
        """The profile that calibration batches fit."""
        return self._calibration_profile

    # devices, of which there is no DLA

    def set_device_type(self, layer: dovetail.ILayer, device_type: DeviceType) -> None:
        """Say what runs a layer; DLA is refused, because there is none."""
        if DeviceType(device_type) is DeviceType.DLA:
            self._reporter.refuse("IBuilderConfig.set_device_type", f"layer '{layer.name}': there is no DLA here")
            return
        self._device_types[layer] = DeviceType.GPU

    def get_device_type(self, layer: dovetail.ILayer) -> DeviceType:
        """What runs a layer."""
        return self._device_types.get(layer, self.default_device_type)

    def is_device_type_set(self, layer: dovetail.ILayer) -> bool:
        """Whether ``set_device_type`` was called for a layer."""
        return layer in self._device_types

    def reset_device_type(self, layer: dovetail.ILayer) -> None:
        """Undo ``set_device_type``."""
        self._device_types.pop(layer, None)

    def can_run_on_DLA(self, layer: dovetail.ILayer) -> bool:  # noqa: N802 - the contract's name
        """False: there is none."""
        return False

    # timing cache

    def create_timing_cache(self, serialized_timing_cache: Any = b"") -> ITimingCache | None:
        """A cache from bytes that ``serialize`` gave, or an empty one; None when the bytes are no cache."""

        def create() -> ITimingCache:
            return ITimingCache(dovetail.TimingCache(bytes(serialized_timing_cache)), self._reporter)

        return self._reporter.attempt("IBuilderConfig.create_timing_cache", create, None)

    def set_timing_cache(self, cache: ITimingCache, ignore_mismatch: bool = False) -> bool:
        """Use a cache; False when it was made elsewhere and that is not to be ignored."""
        if not dovetail.BuilderConfig().set_timing_cache(cache.cache, ignore_mismatch):
            self._reporter.refuse(
                "IBuilderConfig.set_timing_cache", "the timing cache is of another device or version; it is not used"
            )
            return False
        self._timing_cache = cache
        return True

    def get_timing_cache(self) -> ITimingCache | None:
        """The cache in use."""
        return self._timing_cache

    # the engine's form

    def to_engine_config(self) -> dovetail.BuilderConfig:
        """Return the same settings for the engine's builder; settings without effect there are reported."""
        config = dovetail.BuilderConfig()
        for flag in BuilderFlag:
            if self.get_flag(flag) and flag.name not in _QUIET_FLAGS:
                self._copy_flag(config, flag)
        config.profiling_verbosity = dovetail.ProfilingVerbosity(self.profiling_verbosity)
        config.plugins_to_serialize = list(self.plugins_to_serialize)
        config.max_num_tactics = self.max_num_tactics
        config.progress_monitor = None if self.progress_monitor is None else _GuardedMonitor(self.progress_monitor)
        config.int8_calibrator = None if self.int8_calibrator is None else GuardedCalibrator(self.int8_calibrator)
        config.providers = self.providers
        for pool, size_bytes in self._pools.items():
            if pool is dovetail.MemoryPoolType.WORKSPACE:
                config.set_memory_pool_limit(pool, size_bytes)
        if PreviewFeature.ALIASED_PLUGIN_IO_10_03 in self._previews:
            config.set_preview_feature(dovetail.PreviewFeature.ALIASED_PLUGIN_IO_10_03, True)
        for profile in self._profiles:
            config.add_optimization_profile(profile)
        if self._calibration_profile is not None:
            config.set_calibration_profile(self._calibration_profile)
        if self._timing_cache is not None:
            config.set_timing_cache(self._timing_cache.cache, ignore_mismatch=True)
        return config

    def _copy_flag(self, config: dovetail.BuilderConfig, flag: BuilderFlag) -> None:
        if flag.name in _ENGINE_FLAGS:
            config.set_flag(dovetail.BuilderFlag[flag.name])
        else:
            self._reporter.warn(f"BuilderFlag.{flag.name} has no effect")


class _GuardedMonitor(dovetail.IProgressMonitor):
    """Tells a monitor of the script's; one that raises cancels the build."""

    def __init__(self, monitor: Any) -> None:
        self._monitor = monitor
        self._is_broken = False

    def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
        self._call("phase_start", phase_name, parent_phase, num_steps)

    def step_complete(self, phase_name: str, step: int) -> bool:
        answer = self._call("step_complete", phase_name, step)
        return bool(answer) and not self._is_broken

    def phase_finish(self, phase_name: str) -> None:
        self._call("phase_finish", phase_name)

    def _call(self, method: str, *arguments: Any) -> Any:
        failed = object()
        answer = call_user(method, lambda: getattr(self._monitor, method)(*arguments), failed)
        self._is_broken = self._is_broken or answer is failed
        return None if answer is failed else answer
