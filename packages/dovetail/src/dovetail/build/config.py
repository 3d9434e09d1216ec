"""How to build: flags, limits, profiles, the timing cache, and everything else a builder can be told."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from dovetail._no_op_context import NoOpContext
from dovetail.build.profile import OptimizationProfile
from dovetail.build.progress import IProgressMonitor
from dovetail.build.tune.cache import TimingCache
from dovetail.contract_enum import ContractEnum
from dovetail.errors import UsageError
from dovetail.growth import DEFAULT_GROWTH, GrowthLimits
from dovetail.strict_attributes import StrictAttributes
from dovetail.types import EngineCapability

if TYPE_CHECKING:
    from dovetail.build.calibrate.calibrators import IInt8Calibrator
    from dovetail.build.precision.options import PrecisionOptions

__all__ = ["BuilderConfig", "BuilderFlag", "IBuilderConfig", "MemoryPoolType", "PreviewFeature", "ProfilingVerbosity"]


class BuilderFlag(ContractEnum):
    """Switches of a build. The last six are of the weakly typed rule.

    A build tells of each that was set and changes nothing for the network, as those six do for strongly typed ones.
    """

    DEBUG = 0
    GPU_FALLBACK = 1
    REFIT = 2
    DISABLE_TIMING_CACHE = 3
    EDITABLE_TIMING_CACHE = 4
    TF32 = 5
    SPARSE_WEIGHTS = 6
    SAFETY_SCOPE = 7
    DIRECT_IO = 8
    VERSION_COMPATIBLE = 9
    EXCLUDE_LEAN_RUNTIME = 10
    ERROR_ON_TIMING_CACHE_MISS = 11
    DISABLE_COMPILATION_CACHE = 12
    STRIP_PLAN = 13
    REFIT_IDENTICAL = 14
    WEIGHT_STREAMING = 15
    REFIT_INDIVIDUAL = 16
    STRICT_NANS = 17
    MONITOR_MEMORY = 18
    DISTRIBUTIVE_INDEPENDENCE = 19
    FP16 = 20
    BF16 = 21
    INT8 = 22
    FP8 = 23
    OBEY_PRECISION_CONSTRAINTS = 24
    PREFER_PRECISION_CONSTRAINTS = 25


class MemoryPoolType(ContractEnum):
    """Pools whose size can be limited; only WORKSPACE means something on a CPU."""

    WORKSPACE = 0
    DLA_MANAGED_SRAM = 1
    DLA_LOCAL_DRAM = 2
    DLA_GLOBAL_DRAM = 3
    TACTIC_DRAM = 4
    TACTIC_SHARED_MEMORY = 5


class PreviewFeature(ContractEnum):
    """Features that must be switched on by name."""

    ALIASED_PLUGIN_IO_10_03 = 0
    RUNTIME_ACTIVATION_RESIZE_10_10 = 1


class ProfilingVerbosity(ContractEnum):
    """How much of the layers an inspector shows."""

    LAYER_NAMES_ONLY = 0
    NONE = 1
    DETAILED = 2


_DEFAULT_FLAGS: Final = 1 << BuilderFlag.TF32
DEFAULT_WORKSPACE_BYTES: Final = 4 * 2**30


class BuilderConfig(NoOpContext, StrictAttributes):
    """All settings of one build; made by ``Builder.create_builder_config``.

    >>> config = BuilderConfig(); config.set_flag(BuilderFlag.REFIT); config.get_flag(BuilderFlag.REFIT)
    True
    """

    __slots__ = (
        "_asked",
        "_calibration_profile",
        "_pools",
        "_preview",
        "_timing_cache",
        "aliases",
        "avg_timing_iterations",
        "builder_optimization_level",
        "candidate_bytes",
        "engine_capability",
        "extra_passes",
        "flags",
        "growth_limits",
        "int8_calibrator",
        "io_memory",
        "is_part",
        "layer_providers",
        "max_num_tactics",
        "passes_off",
        "plugins_to_serialize",
        "precision",
        "profiles",
        "profiling_verbosity",
        "progress_monitor",
        "provider_options",
        "providers",
        "rival_inputs",
        "rivals",
        "run_plugins",
        "strict",
        "tactic_timeout_s",
        "tells_unset_dims",
        "timing_cache_path",
    )

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Back to the defaults."""
        self.flags = _DEFAULT_FLAGS
        self._asked: frozenset[BuilderFlag] = frozenset()
        self.profiles: list[OptimizationProfile] = []
        self.progress_monitor: IProgressMonitor | None = None
        self.profiling_verbosity = ProfilingVerbosity.LAYER_NAMES_ONLY
        self.plugins_to_serialize: Sequence[str | os.PathLike[str]] = []
        self.tactic_timeout_s = 60.0
        """How long one run of one tactic may take while it is timed."""
        self.max_num_tactics = -1
        self.run_plugins = True
        """Whether every plugin layer is run once before the plan is saved, at the optimum shapes of each profile. A
        plugin that fails ends the build. Off for plugins that cannot run here or must not, such as those with side
        effects; the build then warns which were not run."""
        self.tells_unset_dims = True
        """Whether a build without a profile tells which sizes it tunes for; hosts that cannot set any turn it off."""
        self.is_part = False
        """Whether the model is a part of the one that the settings were written for, so that ``layer_providers`` and
        overrides that fit nothing in it are no mistake."""
        self.avg_timing_iterations = 1
        self.builder_optimization_level = 3
        self.engine_capability = EngineCapability.STANDARD
        self.int8_calibrator: IInt8Calibrator | None = None
        """Who gives sample batches to find INT8 ranges with; for weakly typed networks built with the flag INT8."""
        self._calibration_profile: OptimizationProfile | None = None
        self.precision: PrecisionOptions | None = None
        """The types that layers are to compute in; None for those of the network. See docs/precision.md."""
        self.strict = False
        """Whether tactics that disagree with no reference end the build."""
        self.providers: Sequence[str] | None = None
        """Back ends in order of preference, by name or, for a further device of one, by id such as ``gpu:1``; None
        for the default ones."""
        self.provider_options: dict[str, dict[str, str]] = {}
        """Provider -> its options, for the build and for an engine that is made without going through a file. A plan
        has none stored: options such as threads belong to the machine that runs and are given to ``dovetail.load``."""
        self.passes_off: Sequence[str] = ()
        """Names of passes to leave out (``dovetail.passes.PASS_NAMES``)."""
        self.growth_limits: GrowthLimits = DEFAULT_GROWTH
        """How many nodes and bytes a build may make of a model on its own, by expanding and folding."""
        self.extra_passes: Sequence[Any] = ()
        """Passes of your own (``dovetail.passes.base.Pass``), run after the cleaning ones."""
        self.layer_providers: dict[str, str] = {}
        """Patterns of layer names (``*`` and ``?``) -> the provider they are for, by its id."""
        self.rivals = False
        """Whether whole assignments are timed where several of the providers can take nodes, and the fastest is kept;
        else the order of the providers alone decides."""
        self.rival_inputs: Mapping[str, Any] = {}
        """Input -> the array that rivals are timed with, for networks that do not take any numbers; without an entry
        it is made up."""
        self.io_memory: dict[str, str] = {}
        """Input or output -> ``"host"`` or the id of the provider whose memory callers bind. Without an entry it is in
        the memory of the first provider; shape inputs, objects, packed formats and elements of less than a byte are in
        host memory."""
        self.aliases: dict[str, str] = {}
        """Output -> the input whose memory it gets, such as a cache that a step adds to: nothing but what changes is
        written. Callers bind both to one address. A build ends with an error where that cannot be."""
        self.timing_cache_path: str | os.PathLike[str] | None = None
        """A timing cache shared with other processes; written after every measurement."""
        self.candidate_bytes = 0
        """How many bytes of compiled candidates the plan may carry for each partition, so that ``dovetail.tune`` can
        choose between them where the device is; 0 for none."""
        self._pools: dict[MemoryPoolType, int] = {MemoryPoolType.WORKSPACE: DEFAULT_WORKSPACE_BYTES}
        self._preview: set[PreviewFeature] = set()
        self._timing_cache: TimingCache | None = None

    def __repr__(self) -> str:
        default = BuilderConfig()
        flags = ", ".join(flag.name for flag in self.chosen_flags) or "no flags"
        names = (
            name for name in BuilderConfig.__slots__ if not name.startswith("_") and name not in ("flags", "profiles")
        )
        changed = [f"{name}={getattr(self, name)!r}" for name in names if getattr(self, name) != getattr(default, name)]
        return f"<BuilderConfig: {'; '.join([flags, f'{len(self.profiles)} profile(s)', *changed])}>"

    # flags

    def set_flag(self, flag: BuilderFlag) -> None:
        """Switch a flag on."""
        self.flags |= 1 << BuilderFlag(flag)
        self._asked |= {BuilderFlag(flag)}

    def clear_flag(self, flag: BuilderFlag) -> None:
        """Switch a flag off."""
        self.flags &= ~(1 << BuilderFlag(flag))
        self._asked -= {BuilderFlag(flag)}

    def get_flag(self, flag: BuilderFlag) -> bool:
        """Whether a flag is on."""
        return bool(self.flags & (1 << BuilderFlag(flag)))

    @property
    def chosen_flags(self) -> list[BuilderFlag]:
        """The flags that are on because somebody switched them on; those that are on by default only if asked for."""
        on = [flag for flag in BuilderFlag if self.get_flag(flag)]
        return [flag for flag in on if flag in self._asked or not _DEFAULT_FLAGS >> flag & 1]

    def set_preview_feature(self, feature: PreviewFeature, enable: bool) -> None:
        """Switch a preview feature on or off."""
        (self._preview.add if enable else self._preview.discard)(PreviewFeature(feature))

    def get_preview_feature(self, feature: PreviewFeature) -> bool:
        """Whether a preview feature is on."""
        return PreviewFeature(feature) in self._preview

    # limits

    def set_memory_pool_limit(self, pool: MemoryPoolType, pool_size: int) -> None:
        """Bound a pool, in bytes."""
        if pool_size < 0:
            raise UsageError("a memory limit is negative", got=pool_size)
        self._pools[MemoryPoolType(pool)] = int(pool_size)

    def get_memory_pool_limit(self, pool: MemoryPoolType) -> int:
        """The bound of a pool, in bytes."""
        return self._pools.get(MemoryPoolType(pool), 0)

    # profiles

    def add_optimization_profile(self, profile: OptimizationProfile) -> int:
        """Add a profile; its number comes back."""
        if not isinstance(profile, OptimizationProfile):
            raise UsageError("not an optimization profile", got=type(profile).__name__)
        self.profiles.append(profile)
        return len(self.profiles) - 1

    @property
    def num_optimization_profiles(self) -> int:
        """How many profiles were added."""
        return len(self.profiles)

    def set_calibration_profile(self, profile: OptimizationProfile) -> bool:
        """The profile that calibration batches fit; the first one unless this is called."""
        if not isinstance(profile, OptimizationProfile):
            raise UsageError("not an optimization profile", got=type(profile).__name__)
        self._calibration_profile = profile
        return True

    def get_calibration_profile(self) -> OptimizationProfile | None:
        """The profile that calibration batches fit, when one was set."""
        return self._calibration_profile

    # timing cache

    def create_timing_cache(self, serialized_timing_cache: bytes) -> TimingCache:
        """A cache from bytes that ``serialize`` gave, or an empty one from ``b""``."""
        return TimingCache(bytes(serialized_timing_cache))

    def set_timing_cache(self, cache: TimingCache, ignore_mismatch: bool = False) -> bool:
        """Use a cache; False when it was made on another device or version and that is not to be ignored."""
        if not ignore_mismatch and not self.accepts_cache(cache):
            return False
        self._timing_cache = cache
        return True

    @staticmethod
    def accepts_cache(cache: TimingCache) -> bool:
        """Whether a cache was made where this process runs."""
        from dovetail.build.tune.session import accepts_cache

        return accepts_cache(cache)

    def get_timing_cache(self) -> TimingCache | None:
        """The cache in use."""
        return self._timing_cache


IBuilderConfig = BuilderConfig
"""The contract's name."""
