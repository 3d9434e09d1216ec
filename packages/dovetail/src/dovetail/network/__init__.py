"""What to compute: the network API and ONNX import, both writing an onnx-ir graph.

Each public name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

_MODULES: Final[dict[str, str]] = {
    "definition": "INetworkDefinition Network",
    "tensor": "ITensor",
    "enums": """ActivationType AttentionIOForm AttentionNormalizationOp BoundingBoxFormat CausalMaskKind
        CollectiveOperation CumulativeOperation ElementWiseOperation FillOperation GatherMode InterpolationMode
        KVCacheMode LayerType LoopOutput MatrixOperation MoEActType NetworkDefinitionCreationFlag PaddingMode
        PoolingType ReduceOperation ResizeCoordinateTransformation ResizeRoundMode ResizeSelector SampleMode ScaleMode
        ScatterMode TopKOperation TripLimit UnaryOperation WeightsRole""",
    "layers.base": "ILayer",
    "layers.activation": "IActivationLayer IParametricReLULayer IRaggedSoftMaxLayer ISoftMaxLayer",
    "layers.attention": "IAttention IAttentionBoundaryLayer IKVCacheUpdateLayer IRotaryEmbeddingLayer",
    "layers.basic": "ICastLayer IConstantLayer IIdentityLayer IShapeLayer",
    "layers.convolution": "IConvolutionLayer IDeconvolutionLayer",
    "layers.elementwise": "IElementWiseLayer IScaleLayer ISelectLayer IUnaryLayer",
    "layers.fill": "IFillLayer",
    "layers.gather": "IGatherLayer IOneHotLayer IReverseSequenceLayer IScatterLayer",
    "layers.matrix": "IEinsumLayer IMatrixMultiplyLayer",
    "layers.nms": "INMSLayer",
    "layers.normalization": "ILRNLayer INormalizationLayer",
    "layers.plugin": "IPluginV3Layer",
    "layers.pooling": "IPoolingLayer",
    "layers.quantize": "IDequantizeLayer IDynamicQuantizeLayer IQuantizeLayer",
    "layers.reduce": "ICumulativeLayer INonZeroLayer IReduceLayer ITopKLayer",
    "layers.resize": "IGridSampleLayer IResizeLayer",
    "layers.shuffle": "IConcatenationLayer IPaddingLayer IShuffleLayer ISqueezeLayer IUnsqueezeLayer",
    "layers.slice": "ISliceLayer",
    "layers.special": "IAssertionLayer",
    "loops": "IIteratorLayer ILoop ILoopBoundaryLayer ILoopOutputLayer IRecurrenceLayer ITripLimitLayer",
    "conditionals": """IConditionLayer IIfConditional IIfConditionalBoundaryLayer IIfConditionalInputLayer
        IIfConditionalOutputLayer""",
}
_EXPORTS: Final = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names.split()}

__all__ = sorted(_EXPORTS)  # noqa: PLE0605 - a list, as it must be


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
