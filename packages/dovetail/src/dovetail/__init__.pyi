"""The public names, for type checkers and editors; written by tools/make_stub."""

from dovetail.allocators import (
    AllocatorFlag as AllocatorFlag,
)
from dovetail.allocators import (
    HostAllocator as HostAllocator,
)
from dovetail.allocators import (
    IGpuAllocator as IGpuAllocator,
)
from dovetail.allocators import (
    IGpuAsyncAllocator as IGpuAsyncAllocator,
)
from dovetail.allocators import (
    IOutputAllocator as IOutputAllocator,
)
from dovetail.api import (
    compile as compile,
)
from dovetail.api import (
    profile_from_shapes as profile_from_shapes,
)
from dovetail.build.builder import (
    Builder as Builder,
)
from dovetail.build.builder import (
    HostMemory as HostMemory,
)
from dovetail.build.calibrators import (
    ArrayCalibrator as ArrayCalibrator,
)
from dovetail.build.calibrators import (
    CalibrationAlgoType as CalibrationAlgoType,
)
from dovetail.build.calibrators import (
    IInt8Calibrator as IInt8Calibrator,
)
from dovetail.build.calibrators import (
    IInt8EntropyCalibrator as IInt8EntropyCalibrator,
)
from dovetail.build.calibrators import (
    IInt8EntropyCalibrator2 as IInt8EntropyCalibrator2,
)
from dovetail.build.calibrators import (
    IInt8MinMaxCalibrator as IInt8MinMaxCalibrator,
)
from dovetail.build.config import (
    BuilderConfig as BuilderConfig,
)
from dovetail.build.config import (
    BuilderFlag as BuilderFlag,
)
from dovetail.build.config import (
    MemoryPoolType as MemoryPoolType,
)
from dovetail.build.config import (
    PreviewFeature as PreviewFeature,
)
from dovetail.build.config import (
    ProfilingVerbosity as ProfilingVerbosity,
)
from dovetail.build.profile import (
    OptimizationProfile as OptimizationProfile,
)
from dovetail.build.progress import (
    IProgressMonitor as IProgressMonitor,
)
from dovetail.build.timing_cache import (
    ITimingCache as ITimingCache,
)
from dovetail.build.timing_cache import (
    TimingCache as TimingCache,
)
from dovetail.errors import (
    BuildCancelledError as BuildCancelledError,
)
from dovetail.errors import (
    BuildError as BuildError,
)
from dovetail.errors import (
    DovetailError as DovetailError,
)
from dovetail.errors import (
    InputError as InputError,
)
from dovetail.errors import (
    InternalError as InternalError,
)
from dovetail.errors import (
    ModelError as ModelError,
)
from dovetail.errors import (
    PlanCorruptError as PlanCorruptError,
)
from dovetail.errors import (
    PlanDeviceMismatchError as PlanDeviceMismatchError,
)
from dovetail.errors import (
    PlanError as PlanError,
)
from dovetail.errors import (
    PlanTrustError as PlanTrustError,
)
from dovetail.errors import (
    PlanVersionError as PlanVersionError,
)
from dovetail.errors import (
    PluginError as PluginError,
)
from dovetail.errors import (
    ProviderError as ProviderError,
)
from dovetail.errors import (
    ResourceError as ResourceError,
)
from dovetail.errors import (
    TimingCacheError as TimingCacheError,
)
from dovetail.errors import (
    UnsupportedOpError as UnsupportedOpError,
)
from dovetail.errors import (
    UsageError as UsageError,
)
from dovetail.expr import (
    DimensionOperation as DimensionOperation,
)
from dovetail.expr import (
    DimsExprs as DimsExprs,
)
from dovetail.expr import (
    IDimensionExpr as IDimensionExpr,
)
from dovetail.expr import (
    IExprBuilder as IExprBuilder,
)
from dovetail.loggers import (
    ErrorCode as ErrorCode,
)
from dovetail.loggers import (
    ErrorRecorder as ErrorRecorder,
)
from dovetail.loggers import (
    IErrorRecorder as IErrorRecorder,
)
from dovetail.loggers import (
    ILogger as ILogger,
)
from dovetail.loggers import (
    ILoggerFinder as ILoggerFinder,
)
from dovetail.loggers import (
    Logger as Logger,
)
from dovetail.network.definition import (
    INetworkDefinition as INetworkDefinition,
)
from dovetail.network.definition import (
    Network as Network,
)
from dovetail.network.enums import (
    ActivationType as ActivationType,
)
from dovetail.network.enums import (
    AttentionIOForm as AttentionIOForm,
)
from dovetail.network.enums import (
    AttentionNormalizationOp as AttentionNormalizationOp,
)
from dovetail.network.enums import (
    BoundingBoxFormat as BoundingBoxFormat,
)
from dovetail.network.enums import (
    CausalMaskKind as CausalMaskKind,
)
from dovetail.network.enums import (
    CollectiveOperation as CollectiveOperation,
)
from dovetail.network.enums import (
    CumulativeOperation as CumulativeOperation,
)
from dovetail.network.enums import (
    ElementWiseOperation as ElementWiseOperation,
)
from dovetail.network.enums import (
    FillOperation as FillOperation,
)
from dovetail.network.enums import (
    GatherMode as GatherMode,
)
from dovetail.network.enums import (
    InterpolationMode as InterpolationMode,
)
from dovetail.network.enums import (
    KVCacheMode as KVCacheMode,
)
from dovetail.network.enums import (
    LayerType as LayerType,
)
from dovetail.network.enums import (
    LoopOutput as LoopOutput,
)
from dovetail.network.enums import (
    MatrixOperation as MatrixOperation,
)
from dovetail.network.enums import (
    MoEActType as MoEActType,
)
from dovetail.network.enums import (
    NetworkDefinitionCreationFlag as NetworkDefinitionCreationFlag,
)
from dovetail.network.enums import (
    PaddingMode as PaddingMode,
)
from dovetail.network.enums import (
    PoolingType as PoolingType,
)
from dovetail.network.enums import (
    ReduceOperation as ReduceOperation,
)
from dovetail.network.enums import (
    ResizeCoordinateTransformation as ResizeCoordinateTransformation,
)
from dovetail.network.enums import (
    ResizeRoundMode as ResizeRoundMode,
)
from dovetail.network.enums import (
    ResizeSelector as ResizeSelector,
)
from dovetail.network.enums import (
    SampleMode as SampleMode,
)
from dovetail.network.enums import (
    ScaleMode as ScaleMode,
)
from dovetail.network.enums import (
    ScatterMode as ScatterMode,
)
from dovetail.network.enums import (
    TopKOperation as TopKOperation,
)
from dovetail.network.enums import (
    TripLimit as TripLimit,
)
from dovetail.network.enums import (
    UnaryOperation as UnaryOperation,
)
from dovetail.network.enums import (
    WeightsRole as WeightsRole,
)
from dovetail.plan.inspect import (
    EngineInspector as EngineInspector,
)
from dovetail.plan.inspect import (
    LayerInformationFormat as LayerInformationFormat,
)
from dovetail.plugin.fields import (
    PluginField as PluginField,
)
from dovetail.plugin.fields import (
    PluginFieldCollection as PluginFieldCollection,
)
from dovetail.plugin.fields import (
    PluginFieldType as PluginFieldType,
)
from dovetail.plugin.interfaces import (
    APILanguage as APILanguage,
)
from dovetail.plugin.interfaces import (
    InterfaceInfo as InterfaceInfo,
)
from dovetail.plugin.interfaces import (
    IPluginCapability as IPluginCapability,
)
from dovetail.plugin.interfaces import (
    IPluginCreatorInterface as IPluginCreatorInterface,
)
from dovetail.plugin.interfaces import (
    IPluginCreatorV3One as IPluginCreatorV3One,
)
from dovetail.plugin.interfaces import (
    IPluginResource as IPluginResource,
)
from dovetail.plugin.interfaces import (
    IPluginResourceContext as IPluginResourceContext,
)
from dovetail.plugin.interfaces import (
    IPluginV3 as IPluginV3,
)
from dovetail.plugin.interfaces import (
    IPluginV3OneBuild as IPluginV3OneBuild,
)
from dovetail.plugin.interfaces import (
    IPluginV3OneBuildV2 as IPluginV3OneBuildV2,
)
from dovetail.plugin.interfaces import (
    IPluginV3OneCore as IPluginV3OneCore,
)
from dovetail.plugin.interfaces import (
    IPluginV3OneRuntime as IPluginV3OneRuntime,
)
from dovetail.plugin.interfaces import (
    IVersionedInterface as IVersionedInterface,
)
from dovetail.plugin.interfaces import (
    PluginCapabilityType as PluginCapabilityType,
)
from dovetail.plugin.libraries import (
    PluginLibrary as PluginLibrary,
)
from dovetail.plugin.quick import (
    layer as layer,
)
from dovetail.plugin.registry import (
    IPluginRegistry as IPluginRegistry,
)
from dovetail.plugin.registry import (
    PluginRegistry as PluginRegistry,
)
from dovetail.plugin.registry import (
    get_builder_plugin_registry as get_builder_plugin_registry,
)
from dovetail.plugin.registry import (
    get_plugin_registry as get_plugin_registry,
)
from dovetail.plugin.registry import (
    register_plugin as register_plugin,
)
from dovetail.plugin.safe import (
    SafePluginRegistry as SafePluginRegistry,
)
from dovetail.plugin.safe import (
    get_safe_plugin_registry as get_safe_plugin_registry,
)
from dovetail.plugin.safe import (
    register_safe_plugin as register_safe_plugin,
)
from dovetail.runtime.context import (
    ExecutionContext as ExecutionContext,
)
from dovetail.runtime.engine import (
    Engine as Engine,
)
from dovetail.runtime.loading import (
    Runtime as Runtime,
)
from dovetail.runtime.loading import (
    load as load,
)
from dovetail.runtime.profiler import (
    IProfiler as IProfiler,
)
from dovetail.runtime.profiler import (
    LayerTimes as LayerTimes,
)
from dovetail.runtime.profiler import (
    Profiler as Profiler,
)
from dovetail.runtime.refit import (
    Refitter as Refitter,
)
from dovetail.types import (
    DataType as DataType,
)
from dovetail.types import (
    Dims as Dims,
)
from dovetail.types import (
    Dims2 as Dims2,
)
from dovetail.types import (
    Dims3 as Dims3,
)
from dovetail.types import (
    Dims4 as Dims4,
)
from dovetail.types import (
    DimsHW as DimsHW,
)
from dovetail.types import (
    DynamicPluginTensorDesc as DynamicPluginTensorDesc,
)
from dovetail.types import (
    EngineCapability as EngineCapability,
)
from dovetail.types import (
    Permutation as Permutation,
)
from dovetail.types import (
    PluginTensorDesc as PluginTensorDesc,
)
from dovetail.types import (
    TensorFormat as TensorFormat,
)
from dovetail.types import (
    TensorIOMode as TensorIOMode,
)
from dovetail.types import (
    TensorLocation as TensorLocation,
)
from dovetail.types import (
    TensorRTPhase as TensorRTPhase,
)
from dovetail.types import (
    Weights as Weights,
)
from dovetail.types import (
    nptype as nptype,
)
from dovetail.types import (
    volume as volume,
)

__version__: str
bfloat16: DataType
bool: DataType
e8m0: DataType
float16: DataType
float32: DataType
fp4: DataType
fp8: DataType
int32: DataType
int4: DataType
int64: DataType
int8: DataType
uint8: DataType
