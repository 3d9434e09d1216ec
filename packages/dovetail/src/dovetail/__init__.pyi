"""The public names, for type checkers and editors; written by tools/make_stub."""

from dovetail.allocators import (
    AllocatorFlag as AllocatorFlag,
    HostAllocator as HostAllocator,
    IGpuAllocator as IGpuAllocator,
    IGpuAsyncAllocator as IGpuAsyncAllocator,
    IOutputAllocator as IOutputAllocator,
)
from dovetail.api import (
    compile as compile,
    profile_from_shapes as profile_from_shapes,
)
from dovetail.build.assign.support import (
    Support as Support,
    find_support as find_support,
)
from dovetail.build.builder import (
    Builder as Builder,
)
from dovetail.build.calibrate.calibrators import (
    ArrayCalibrator as ArrayCalibrator,
    CalibrationAlgoType as CalibrationAlgoType,
    IInt8Calibrator as IInt8Calibrator,
    IInt8EntropyCalibrator as IInt8EntropyCalibrator,
    IInt8EntropyCalibrator2 as IInt8EntropyCalibrator2,
    IInt8MinMaxCalibrator as IInt8MinMaxCalibrator,
)
from dovetail.build.config import (
    BuilderConfig as BuilderConfig,
    BuilderFlag as BuilderFlag,
    IBuilderConfig as IBuilderConfig,
    MemoryPoolType as MemoryPoolType,
    PreviewFeature as PreviewFeature,
    ProfilingVerbosity as ProfilingVerbosity,
)
from dovetail.build.plan_tuning import (
    tune as tune,
)
from dovetail.build.precision.options import (
    PrecisionOptions as PrecisionOptions,
)
from dovetail.build.profile import (
    IOptimizationProfile as IOptimizationProfile,
    OptimizationProfile as OptimizationProfile,
)
from dovetail.build.progress import (
    IProgressMonitor as IProgressMonitor,
)
from dovetail.build.tune.cache import (
    ITimingCache as ITimingCache,
    TimingCache as TimingCache,
)
from dovetail.contract_enum import (
    ContractEnum as ContractEnum,
)
from dovetail.errors import (
    BuildCancelledError as BuildCancelledError,
    BuildError as BuildError,
    DeviceMissingError as DeviceMissingError,
    DovetailError as DovetailError,
    InputError as InputError,
    InternalError as InternalError,
    ModelError as ModelError,
    PlanCorruptError as PlanCorruptError,
    PlanDeviceMismatchError as PlanDeviceMismatchError,
    PlanError as PlanError,
    PlanTrustError as PlanTrustError,
    PlanVersionError as PlanVersionError,
    PluginError as PluginError,
    ProviderError as ProviderError,
    ResourceError as ResourceError,
    RunCancelledError as RunCancelledError,
    TimingCacheError as TimingCacheError,
    UnsupportedOpError as UnsupportedOpError,
    UsageError as UsageError,
)
from dovetail.exchange import (
    as_dlpack as as_dlpack,
)
from dovetail.expr import (
    DimensionOperation as DimensionOperation,
    DimsExprs as DimsExprs,
    IDimensionExpr as IDimensionExpr,
    IExprBuilder as IExprBuilder,
)
from dovetail.growth import (
    GrowthLimits as GrowthLimits,
)
from dovetail.host_memory import (
    HostMemory as HostMemory,
    IHostMemory as IHostMemory,
)
from dovetail.loggers import (
    ErrorCode as ErrorCode,
    ErrorCodeTRT as ErrorCodeTRT,
    ErrorRecorder as ErrorRecorder,
    IErrorRecorder as IErrorRecorder,
    ILogger as ILogger,
    ILoggerFinder as ILoggerFinder,
    Logger as Logger,
)
from dovetail.network.api.conditionals import (
    IConditionLayer as IConditionLayer,
    IIfConditional as IIfConditional,
    IIfConditionalBoundaryLayer as IIfConditionalBoundaryLayer,
    IIfConditionalInputLayer as IIfConditionalInputLayer,
    IIfConditionalOutputLayer as IIfConditionalOutputLayer,
)
from dovetail.network.api.definition import (
    INetworkDefinition as INetworkDefinition,
    Network as Network,
)
from dovetail.network.api.enums import (
    ActivationType as ActivationType,
    AttentionIOForm as AttentionIOForm,
    AttentionNormalizationOp as AttentionNormalizationOp,
    BoundingBoxFormat as BoundingBoxFormat,
    CausalMaskKind as CausalMaskKind,
    CollectiveOperation as CollectiveOperation,
    CumulativeOperation as CumulativeOperation,
    ElementWiseOperation as ElementWiseOperation,
    FillOperation as FillOperation,
    GatherMode as GatherMode,
    InterpolationMode as InterpolationMode,
    KVCacheMode as KVCacheMode,
    LayerType as LayerType,
    LoopOutput as LoopOutput,
    MatrixOperation as MatrixOperation,
    MoEActType as MoEActType,
    NetworkDefinitionCreationFlag as NetworkDefinitionCreationFlag,
    PaddingMode as PaddingMode,
    PoolingType as PoolingType,
    ReduceOperation as ReduceOperation,
    ResizeCoordinateTransformation as ResizeCoordinateTransformation,
    ResizeRoundMode as ResizeRoundMode,
    ResizeSelector as ResizeSelector,
    SampleMode as SampleMode,
    ScaleMode as ScaleMode,
    ScatterMode as ScatterMode,
    TopKOperation as TopKOperation,
    TripLimit as TripLimit,
    UnaryOperation as UnaryOperation,
    WeightsRole as WeightsRole,
)
from dovetail.network.api.layers.activation import (
    IActivationLayer as IActivationLayer,
    IParametricReLULayer as IParametricReLULayer,
    IRaggedSoftMaxLayer as IRaggedSoftMaxLayer,
    ISoftMaxLayer as ISoftMaxLayer,
)
from dovetail.network.api.layers.attention import (
    IAttention as IAttention,
    IAttentionBoundaryLayer as IAttentionBoundaryLayer,
    IKVCacheUpdateLayer as IKVCacheUpdateLayer,
    IRotaryEmbeddingLayer as IRotaryEmbeddingLayer,
)
from dovetail.network.api.layers.base import (
    ILayer as ILayer,
)
from dovetail.network.api.layers.basic import (
    ICastLayer as ICastLayer,
    IConstantLayer as IConstantLayer,
    IIdentityLayer as IIdentityLayer,
    IShapeLayer as IShapeLayer,
)
from dovetail.network.api.layers.convolution import (
    IConvolutionLayer as IConvolutionLayer,
    IDeconvolutionLayer as IDeconvolutionLayer,
)
from dovetail.network.api.layers.elementwise import (
    IElementWiseLayer as IElementWiseLayer,
    IScaleLayer as IScaleLayer,
    ISelectLayer as ISelectLayer,
    IUnaryLayer as IUnaryLayer,
)
from dovetail.network.api.layers.fill import (
    IFillLayer as IFillLayer,
)
from dovetail.network.api.layers.gather import (
    IGatherLayer as IGatherLayer,
    IOneHotLayer as IOneHotLayer,
    IReverseSequenceLayer as IReverseSequenceLayer,
    IScatterLayer as IScatterLayer,
)
from dovetail.network.api.layers.matrix import (
    IEinsumLayer as IEinsumLayer,
    IMatrixMultiplyLayer as IMatrixMultiplyLayer,
)
from dovetail.network.api.layers.nms import (
    INMSLayer as INMSLayer,
)
from dovetail.network.api.layers.normalization import (
    ILRNLayer as ILRNLayer,
    INormalizationLayer as INormalizationLayer,
)
from dovetail.network.api.layers.plugin import (
    IPluginV2Layer as IPluginV2Layer,
    IPluginV3Layer as IPluginV3Layer,
)
from dovetail.network.api.layers.pooling import (
    IPoolingLayer as IPoolingLayer,
)
from dovetail.network.api.layers.quantize import (
    IDequantizeLayer as IDequantizeLayer,
    IDynamicQuantizeLayer as IDynamicQuantizeLayer,
    IQuantizeLayer as IQuantizeLayer,
)
from dovetail.network.api.layers.reduce import (
    ICumulativeLayer as ICumulativeLayer,
    INonZeroLayer as INonZeroLayer,
    IReduceLayer as IReduceLayer,
    ITopKLayer as ITopKLayer,
)
from dovetail.network.api.layers.resize import (
    IGridSampleLayer as IGridSampleLayer,
    IResizeLayer as IResizeLayer,
)
from dovetail.network.api.layers.shuffle import (
    IConcatenationLayer as IConcatenationLayer,
    IPaddingLayer as IPaddingLayer,
    IShuffleLayer as IShuffleLayer,
    ISqueezeLayer as ISqueezeLayer,
    IUnsqueezeLayer as IUnsqueezeLayer,
)
from dovetail.network.api.layers.slice import (
    ISliceLayer as ISliceLayer,
)
from dovetail.network.api.layers.special import (
    IAssertionLayer as IAssertionLayer,
)
from dovetail.network.api.loops import (
    IIteratorLayer as IIteratorLayer,
    ILoop as ILoop,
    ILoopBoundaryLayer as ILoopBoundaryLayer,
    ILoopOutputLayer as ILoopOutputLayer,
    IRecurrenceLayer as IRecurrenceLayer,
    ITripLimitLayer as ITripLimitLayer,
)
from dovetail.network.api.tensor import (
    ITensor as ITensor,
)
from dovetail.network.surgery import (
    replace_pattern as replace_pattern,
    replace_subgraph as replace_subgraph,
)
from dovetail.plan.inspect import (
    EngineInspector as EngineInspector,
    LayerInformationFormat as LayerInformationFormat,
)
from dovetail.plan.sizes import (
    count_missing_bytes as count_missing_bytes,
)
from dovetail.plan.summary import (
    EngineReport as EngineReport,
    TuningTable as TuningTable,
)
from dovetail.plugin.fields import (
    PluginField as PluginField,
    PluginFieldCollection as PluginFieldCollection,
    PluginFieldType as PluginFieldType,
)
from dovetail.plugin.interfaces import (
    APILanguage as APILanguage,
    IPluginCapability as IPluginCapability,
    IPluginCreatorInterface as IPluginCreatorInterface,
    IPluginCreatorV3One as IPluginCreatorV3One,
    IPluginResource as IPluginResource,
    IPluginResourceContext as IPluginResourceContext,
    IPluginV3 as IPluginV3,
    IPluginV3OneBuild as IPluginV3OneBuild,
    IPluginV3OneBuildV2 as IPluginV3OneBuildV2,
    IPluginV3OneCore as IPluginV3OneCore,
    IPluginV3OneRuntime as IPluginV3OneRuntime,
    IVersionedInterface as IVersionedInterface,
    InterfaceInfo as InterfaceInfo,
    PluginCapabilityType as PluginCapabilityType,
)
from dovetail.plugin.kernels import (
    KernelLaunch as KernelLaunch,
)
from dovetail.plugin.libraries import (
    PluginLibrary as PluginLibrary,
)
from dovetail.plugin.quick import (
    layer as layer,
)
from dovetail.plugin.registry import (
    IPluginRegistry as IPluginRegistry,
    PluginRegistry as PluginRegistry,
    get_builder_plugin_registry as get_builder_plugin_registry,
    get_plugin_registry as get_plugin_registry,
    register_plugin as register_plugin,
)
from dovetail.plugin.safe import (
    SafePluginRegistry as SafePluginRegistry,
    get_safe_plugin_registry as get_safe_plugin_registry,
    register_safe_plugin as register_safe_plugin,
)
from dovetail.provider.loader import (
    register_provider as register_provider,
    unregister_provider as unregister_provider,
)
from dovetail.runtime.benchmark import (
    BenchmarkResult as BenchmarkResult,
)
from dovetail.runtime.bind.run import (
    BoundRun as BoundRun,
)
from dovetail.runtime.context import (
    ExecutionContext as ExecutionContext,
    IExecutionContext as IExecutionContext,
)
from dovetail.runtime.devices.tensors import (
    DeviceTensor as DeviceTensor,
)
from dovetail.runtime.engine import (
    Engine as Engine,
    ICudaEngine as ICudaEngine,
)
from dovetail.runtime.limits import (
    RunLimits as RunLimits,
)
from dovetail.runtime.loading import (
    Runtime as Runtime,
    load as load,
)
from dovetail.runtime.profiler import (
    IProfiler as IProfiler,
    LayerTimes as LayerTimes,
    Profiler as Profiler,
)
from dovetail.runtime.refit import (
    Refitter as Refitter,
)
from dovetail.session import (
    InferenceSession as InferenceSession,
)
from dovetail.strict_attributes import (
    StrictAttributes as StrictAttributes,
)
from dovetail.types import (
    DataType as DataType,
    Dims as Dims,
    Dims2 as Dims2,
    Dims3 as Dims3,
    Dims4 as Dims4,
    DimsHW as DimsHW,
    DynamicPluginTensorDesc as DynamicPluginTensorDesc,
    EngineCapability as EngineCapability,
    Permutation as Permutation,
    PluginTensorDesc as PluginTensorDesc,
    TensorFormat as TensorFormat,
    TensorIOMode as TensorIOMode,
    TensorLocation as TensorLocation,
    TensorRTPhase as TensorRTPhase,
    Weights as Weights,
    nptype as nptype,
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
