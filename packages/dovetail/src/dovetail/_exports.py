"""Which module each public name of the package lives in; data for the lazy import in ``dovetail``.

``typing`` is not imported, because ``import dovetail`` reads this module and has to be fast.
"""

from __future__ import annotations

__all__ = ["ALIASES", "EXPORTS"]

_MODULES: dict[str, str] = {
    "dovetail.api": "compile profile_from_shapes",
    "dovetail.build.builder": "Builder",
    "dovetail.build.plan_tuning": "tune",
    "dovetail.build.calibrate.calibrators": """ArrayCalibrator CalibrationAlgoType IInt8Calibrator
        IInt8EntropyCalibrator IInt8EntropyCalibrator2 IInt8MinMaxCalibrator""",
    "dovetail.build.config": """BuilderConfig BuilderFlag IBuilderConfig MemoryPoolType PreviewFeature
        ProfilingVerbosity""",
    "dovetail.build.precision.options": "PrecisionOptions",
    "dovetail.build.assign.support": "Support find_support",
    "dovetail.contract_enum": "ContractEnum",
    "dovetail.strict_attributes": "StrictAttributes",
    "dovetail.growth": "GrowthLimits",
    "dovetail.host_memory": "HostMemory IHostMemory",
    "dovetail.build.profile": "IOptimizationProfile OptimizationProfile",
    "dovetail.exchange": "as_dlpack",
    "dovetail.plan.inspect": "EngineInspector LayerInformationFormat",
    "dovetail.plan.summary": "EngineReport TuningTable",
    "dovetail.runtime.benchmark": "BenchmarkResult",
    "dovetail.session": "InferenceSession",
    "dovetail.plan.sizes": "count_missing_bytes",
    "dovetail.runtime.engine": "Engine ICudaEngine",
    "dovetail.runtime.bind.run": "BoundRun",
    "dovetail.runtime.devices.tensors": "DeviceTensor",
    "dovetail.runtime.context": "ExecutionContext IExecutionContext",
    "dovetail.runtime.loading": "Runtime load",
    "dovetail.runtime.limits": "RunLimits",
    "dovetail.runtime.refit": "Refitter",
    "dovetail.runtime.profiler": "IProfiler LayerTimes Profiler",
    "dovetail.errors": """BuildCancelledError BuildError DeviceMissingError DovetailError InputError InternalError
        ModelError PlanCorruptError PlanDeviceMismatchError PlanError PlanTrustError PlanVersionError PluginError
        ProviderError ResourceError RunCancelledError TimingCacheError UnsupportedOpError UsageError""",
    "dovetail.types": """DataType Dims Dims2 Dims3 Dims4 DimsHW DynamicPluginTensorDesc EngineCapability Permutation
        PluginTensorDesc TensorFormat TensorIOMode TensorLocation TensorRTPhase Weights nptype volume""",
    "dovetail.expr": "DimensionOperation DimsExprs IDimensionExpr IExprBuilder",
    "dovetail.loggers": "ErrorCode ErrorCodeTRT ErrorRecorder IErrorRecorder ILogger ILoggerFinder Logger",
    "dovetail.allocators": "AllocatorFlag HostAllocator IGpuAllocator IGpuAsyncAllocator IOutputAllocator",
    "dovetail.network.api.definition": "INetworkDefinition Network",
    "dovetail.network.api.enums": """
        ActivationType AttentionIOForm AttentionNormalizationOp BoundingBoxFormat CausalMaskKind
        CollectiveOperation CumulativeOperation ElementWiseOperation FillOperation GatherMode
        InterpolationMode KVCacheMode LayerType LoopOutput MatrixOperation MoEActType
        NetworkDefinitionCreationFlag PaddingMode PoolingType ReduceOperation
        ResizeCoordinateTransformation ResizeRoundMode ResizeSelector SampleMode ScaleMode
        ScatterMode TopKOperation TripLimit UnaryOperation WeightsRole""",
    "dovetail.network.surgery": "replace_pattern replace_subgraph",
    "dovetail.network.api.tensor": "ITensor",
    "dovetail.network.api.layers.base": "ILayer",
    "dovetail.network.api.layers.activation": """IActivationLayer IParametricReLULayer IRaggedSoftMaxLayer
        ISoftMaxLayer""",
    "dovetail.network.api.layers.attention": """IAttention IAttentionBoundaryLayer IKVCacheUpdateLayer
        IRotaryEmbeddingLayer""",
    "dovetail.network.api.layers.basic": "ICastLayer IConstantLayer IIdentityLayer IShapeLayer",
    "dovetail.network.api.layers.convolution": "IConvolutionLayer IDeconvolutionLayer",
    "dovetail.network.api.layers.elementwise": "IElementWiseLayer IScaleLayer ISelectLayer IUnaryLayer",
    "dovetail.network.api.layers.fill": "IFillLayer",
    "dovetail.network.api.layers.gather": "IGatherLayer IOneHotLayer IReverseSequenceLayer IScatterLayer",
    "dovetail.network.api.layers.matrix": "IEinsumLayer IMatrixMultiplyLayer",
    "dovetail.network.api.layers.nms": "INMSLayer",
    "dovetail.network.api.layers.normalization": "ILRNLayer INormalizationLayer",
    "dovetail.network.api.layers.plugin": "IPluginV2Layer IPluginV3Layer",
    "dovetail.network.api.layers.pooling": "IPoolingLayer",
    "dovetail.network.api.layers.quantize": "IDequantizeLayer IDynamicQuantizeLayer IQuantizeLayer",
    "dovetail.network.api.layers.reduce": "ICumulativeLayer INonZeroLayer IReduceLayer ITopKLayer",
    "dovetail.network.api.layers.resize": "IGridSampleLayer IResizeLayer",
    "dovetail.network.api.layers.shuffle": """IConcatenationLayer IPaddingLayer IShuffleLayer ISqueezeLayer
        IUnsqueezeLayer""",
    "dovetail.network.api.layers.slice": "ISliceLayer",
    "dovetail.network.api.layers.special": "IAssertionLayer",
    "dovetail.network.api.loops": """IIteratorLayer ILoop ILoopBoundaryLayer ILoopOutputLayer IRecurrenceLayer
        ITripLimitLayer""",
    "dovetail.network.api.conditionals": """IConditionLayer IIfConditional IIfConditionalBoundaryLayer
        IIfConditionalInputLayer IIfConditionalOutputLayer""",
    "dovetail.provider.loader": "register_provider unregister_provider",
    "dovetail.plugin.fields": "PluginField PluginFieldCollection PluginFieldType",
    "dovetail.plugin.interfaces": """APILanguage IPluginCapability IPluginCreatorInterface IPluginCreatorV3One
        IPluginResource IPluginResourceContext IPluginV3 IPluginV3OneBuild IPluginV3OneBuildV2 IPluginV3OneCore
        IPluginV3OneRuntime IVersionedInterface InterfaceInfo PluginCapabilityType""",
    "dovetail.plugin.kernels": "KernelLaunch",
    "dovetail.plugin.libraries": "PluginLibrary",
    "dovetail.plugin.quick": "layer",
    "dovetail.plugin.registry": """IPluginRegistry PluginRegistry get_builder_plugin_registry get_plugin_registry
        register_plugin""",
    "dovetail.plugin.safe": "SafePluginRegistry get_safe_plugin_registry register_safe_plugin",
    "dovetail.build.progress": "IProgressMonitor",
    "dovetail.build.tune.cache": "ITimingCache TimingCache",
}

EXPORTS: dict[str, str] = {name: module for module, names in _MODULES.items() for name in names.split()}
"""Public name -> module."""

ALIASES: dict[str, tuple[str, str]] = {
    alias: ("dovetail.types", f"DataType.{member}")
    for alias, member in (
        ("float32", "FLOAT"),
        ("float16", "HALF"),
        ("bfloat16", "BF16"),
        ("int8", "INT8"),
        ("int32", "INT32"),
        ("int64", "INT64"),
        ("bool", "BOOL"),
        ("uint8", "UINT8"),
        ("fp8", "FP8"),
        ("int4", "INT4"),
        ("fp4", "FP4"),
        ("e8m0", "E8M0"),
    )
}
"""Public name -> module and the path of the object in it."""
