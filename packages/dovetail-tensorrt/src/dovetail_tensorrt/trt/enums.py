"""Enumerations of the contract that the engine itself has no use for, or has under other numbers."""

from __future__ import annotations

from dovetail import ContractEnum

__all__ = [
    "AllocatorFlag",
    "BuilderFlag",
    "DeviceType",
    "EngineStat",
    "ExecutionContextAllocationStrategy",
    "HardwareCompatibilityLevel",
    "NetworkDefinitionCreationFlag",
    "OnnxParserFlag",
    "PreviewFeature",
    "QuantizationFlag",
    "RuntimePlatform",
    "SeekPosition",
    "SerializationFlag",
    "TacticSource",
    "TempfileControlFlag",
    "TilingOptimizationLevel",
]


class NetworkDefinitionCreationFlag(ContractEnum):
    """How a network is made; EXPLICIT_BATCH is of version 10, where it had no effect any more."""

    EXPLICIT_BATCH = 0
    STRONGLY_TYPED = 1
    PREFER_JIT_PYTHON_PLUGINS = 2
    PREFER_AOT_PYTHON_PLUGINS = 3


class BuilderFlag(ContractEnum):
    """Switches of a build, with the numbers of version 10; those for precisions are of its weakly typed networks."""

    FP16 = 0
    INT8 = 1
    DEBUG = 2
    GPU_FALLBACK = 3
    REFIT = 4
    DISABLE_TIMING_CACHE = 5
    TF32 = 6
    SPARSE_WEIGHTS = 7
    SAFETY_SCOPE = 8
    OBEY_PRECISION_CONSTRAINTS = 9
    PREFER_PRECISION_CONSTRAINTS = 10
    DIRECT_IO = 11
    REJECT_EMPTY_ALGORITHMS = 12
    VERSION_COMPATIBLE = 13
    EXCLUDE_LEAN_RUNTIME = 14
    FP8 = 15
    ERROR_ON_TIMING_CACHE_MISS = 16
    BF16 = 17
    DISABLE_COMPILATION_CACHE = 18
    STRIP_PLAN = 19
    REFIT_IDENTICAL = 20
    WEIGHT_STREAMING = 21
    INT4 = 22
    REFIT_INDIVIDUAL = 23
    STRICT_NANS = 24
    MONITOR_MEMORY = 25
    FP4 = 26
    EDITABLE_TIMING_CACHE = 27
    DISTRIBUTIVE_INDEPENDENCE = 28


class ExecutionContextAllocationStrategy(ContractEnum):
    """Who provides the memory of a context, and when."""

    STATIC = 0
    ON_PROFILE_CHANGE = 1
    USER_MANAGED = 2


class SerializationFlag(ContractEnum):
    """What a serialized engine leaves out or keeps."""

    EXCLUDE_WEIGHTS = 0
    EXCLUDE_LEAN_RUNTIME = 1
    INCLUDE_REFIT = 2


class EngineStat(ContractEnum):
    """Numbers that an engine can be asked for."""

    TOTAL_WEIGHTS_SIZE = 0
    STRIPPED_WEIGHTS_SIZE = 1


class SeekPosition(ContractEnum):
    """What an offset in a stream counts from."""

    SET = 0
    CUR = 1
    END = 2


class HardwareCompatibilityLevel(ContractEnum):
    """On which other devices an engine is to run."""

    NONE = 0
    AMPERE_PLUS = 1
    SAME_COMPUTE_CAPABILITY = 2


class RuntimePlatform(ContractEnum):
    """On which platform an engine is to run."""

    SAME_AS_BUILD = 0
    WINDOWS_AMD64 = 1


class DeviceType(ContractEnum):
    """What runs a layer; there is no DLA here."""

    GPU = 0
    DLA = 1


class TempfileControlFlag(ContractEnum):
    """Which temporary files a runtime may make."""

    ALLOW_IN_MEMORY_FILES = 0
    ALLOW_TEMPORARY_FILES = 1


class TacticSource(ContractEnum):
    """Libraries that tactics come from; the first three are of version 10."""

    CUBLAS = 0
    CUBLAS_LT = 1
    CUDNN = 2
    EDGE_MASK_CONVOLUTIONS = 3
    JIT_CONVOLUTIONS = 4


class TilingOptimizationLevel(ContractEnum):
    """How much effort goes into tiling."""

    NONE = 0
    FAST = 1
    MODERATE = 2
    FULL = 3


class OnnxParserFlag(ContractEnum):
    """Switches of the ONNX parser."""

    NATIVE_INSTANCENORM = 0
    ENABLE_UINT8_AND_ASYMMETRIC_QUANTIZATION_DLA = 1
    REPORT_CAPABILITY_DLA = 2
    ENABLE_PLUGIN_OVERRIDE = 3
    ADJUST_FOR_DLA = 4


class PreviewFeature(ContractEnum):
    """Features that must be switched on by name; PROFILE_SHARING_0806 is of version 10, where it was always on."""

    PROFILE_SHARING_0806 = 0
    ALIASED_PLUGIN_IO_10_03 = 1
    RUNTIME_ACTIVATION_RESIZE_10_10 = 2


class QuantizationFlag(ContractEnum):
    """Switches of calibration; of version 10."""

    CALIBRATE_BEFORE_FUSION = 0


class AllocatorFlag(ContractEnum):
    """What an allocation must allow, as a bit of the flags that an allocator gets."""

    RESIZABLE = 0
