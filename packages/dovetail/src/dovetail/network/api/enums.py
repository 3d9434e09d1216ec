"""The enumerations of the network API, in the order and with the values of the contract."""

from __future__ import annotations

from dovetail._contract_enum import ContractEnum

__all__ = [
    "ActivationType",
    "AttentionIOForm",
    "AttentionNormalizationOp",
    "BoundingBoxFormat",
    "CausalMaskKind",
    "CollectiveOperation",
    "CumulativeOperation",
    "ElementWiseOperation",
    "FillOperation",
    "GatherMode",
    "InterpolationMode",
    "KVCacheMode",
    "LayerType",
    "LoopOutput",
    "MatrixOperation",
    "MoEActType",
    "NetworkDefinitionCreationFlag",
    "PaddingMode",
    "PoolingType",
    "ReduceOperation",
    "ResizeCoordinateTransformation",
    "ResizeRoundMode",
    "ResizeSelector",
    "SampleMode",
    "ScaleMode",
    "ScatterMode",
    "TopKOperation",
    "TripLimit",
    "UnaryOperation",
    "WeightsRole",
]


class NetworkDefinitionCreationFlag(ContractEnum):
    """Bits of the flags that a network is created with, as ``1 << int(flag)``."""

    STRONGLY_TYPED = 0
    PREFER_AOT_PYTHON_PLUGINS = 1
    PREFER_JIT_PYTHON_PLUGINS = 2


class WeightsRole(ContractEnum):
    """What a layer uses its weights for; names weights together with the layer's name."""

    KERNEL = 0
    BIAS = 1
    SHIFT = 2
    SCALE = 3
    CONSTANT = 4
    ANY = 5


class LayerType(ContractEnum):
    """What kind of layer an ``ILayer`` is."""

    CONVOLUTION = 0
    CAST = 1
    ACTIVATION = 2
    POOLING = 3
    LRN = 4
    SCALE = 5
    SOFTMAX = 6
    DECONVOLUTION = 7
    CONCATENATION = 8
    ELEMENTWISE = 9
    PLUGIN = 10
    UNARY = 11
    PADDING = 12
    SHUFFLE = 13
    REDUCE = 14
    TOPK = 15
    GATHER = 16
    MATRIX_MULTIPLY = 17
    RAGGED_SOFTMAX = 18
    CONSTANT = 19
    IDENTITY = 20
    PLUGIN_V2 = 21
    SLICE = 22
    SHAPE = 23
    PARAMETRIC_RELU = 24
    RESIZE = 25
    TRIP_LIMIT = 26
    RECURRENCE = 27
    ITERATOR = 28
    LOOP_OUTPUT = 29
    SELECT = 30
    FILL = 31
    QUANTIZE = 32
    DEQUANTIZE = 33
    CONDITION = 34
    CONDITIONAL_INPUT = 35
    CONDITIONAL_OUTPUT = 36
    SCATTER = 37
    EINSUM = 38
    ASSERTION = 39
    ONE_HOT = 40
    NON_ZERO = 41
    GRID_SAMPLE = 42
    NMS = 43
    REVERSE_SEQUENCE = 44
    NORMALIZATION = 45
    PLUGIN_V3 = 46
    SQUEEZE = 47
    UNSQUEEZE = 48
    CUMULATIVE = 49
    DYNAMIC_QUANTIZE = 50
    ATTENTION_INPUT = 51
    ATTENTION_OUTPUT = 52
    ROTARY_EMBEDDING = 53
    KV_CACHE_UPDATE = 54
    MOE = 55
    DIST_COLLECTIVE = 56


class PaddingMode(ContractEnum):
    """How padding and output size of a window layer follow from each other."""

    EXPLICIT_ROUND_DOWN = 0
    EXPLICIT_ROUND_UP = 1
    SAME_UPPER = 2
    SAME_LOWER = 3


class ActivationType(ContractEnum):
    """The functions of an activation layer; some use ``alpha`` and ``beta``."""

    RELU = 0
    SIGMOID = 1
    TANH = 2
    LEAKY_RELU = 3
    ELU = 4
    SELU = 5
    SOFTSIGN = 6
    SOFTPLUS = 7
    CLIP = 8
    HARD_SIGMOID = 9
    SCALED_TANH = 10
    THRESHOLDED_RELU = 11
    GELU_ERF = 12
    GELU_TANH = 13


class PoolingType(ContractEnum):
    """How a pooling window becomes one number."""

    MAX = 0
    AVERAGE = 1
    MAX_AVERAGE_BLEND = 2


class ScaleMode(ContractEnum):
    """How many coefficients a scale layer has."""

    UNIFORM = 0
    CHANNEL = 1
    ELEMENTWISE = 2


class ElementWiseOperation(ContractEnum):
    """The operations of two tensors, element by element."""

    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    SUB = 4
    DIV = 5
    POW = 6
    FLOOR_DIV = 7
    AND = 8
    OR = 9
    XOR = 10
    EQUAL = 11
    GREATER = 12
    LESS = 13


class ScatterMode(ContractEnum):
    """How the indices of a scatter layer are read."""

    ELEMENT = 0
    ND = 1


class GatherMode(ContractEnum):
    """How the indices of a gather layer are read."""

    DEFAULT = 0
    ELEMENT = 1
    ND = 2


class UnaryOperation(ContractEnum):
    """The operations of one tensor, element by element."""

    EXP = 0
    LOG = 1
    SQRT = 2
    RECIP = 3
    ABS = 4
    NEG = 5
    SIN = 6
    COS = 7
    TAN = 8
    SINH = 9
    COSH = 10
    ASIN = 11
    ACOS = 12
    ATAN = 13
    ASINH = 14
    ACOSH = 15
    ATANH = 16
    CEIL = 17
    FLOOR = 18
    ERF = 19
    NOT = 20
    SIGN = 21
    ROUND = 22
    ISINF = 23
    ISNAN = 24


class ReduceOperation(ContractEnum):
    """How a reduce layer joins the elements of its axes."""

    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    AVG = 4
    NONE = 5


class InterpolationMode(ContractEnum):
    """How a value between grid points is found."""

    NEAREST = 0
    LINEAR = 1
    CUBIC = 2


class SampleMode(ContractEnum):
    """What lies outside a tensor's bounds."""

    STRICT_BOUNDS = 0
    WRAP = 1
    CLAMP = 2
    FILL = 3
    REFLECT = 4


class TopKOperation(ContractEnum):
    """Whether the largest or the smallest elements are kept."""

    MAX = 0
    MIN = 1


class MatrixOperation(ContractEnum):
    """How a tensor is read before it is multiplied."""

    NONE = 0
    TRANSPOSE = 1
    VECTOR = 2


class CollectiveOperation(ContractEnum):
    """What several devices do together."""

    ALL_REDUCE = 0
    ALL_GATHER = 1
    BROADCAST = 2
    REDUCE = 3
    REDUCE_SCATTER = 4
    ALL_TO_ALL = 5
    GATHER = 6
    SCATTER = 7


class ResizeCoordinateTransformation(ContractEnum):
    """How an output coordinate maps to an input coordinate."""

    ALIGN_CORNERS = 0
    ASYMMETRIC = 1
    HALF_PIXEL = 2


class ResizeSelector(ContractEnum):
    """Which coordinate is taken when a dimension is resized to one."""

    FORMULA = 0
    UPPER = 1


class ResizeRoundMode(ContractEnum):
    """How a coordinate is rounded to the nearest element."""

    HALF_UP = 0
    HALF_DOWN = 1
    FLOOR = 2
    CEIL = 3


class LoopOutput(ContractEnum):
    """What leaves a loop: the last value, or the values of all iterations."""

    LAST_VALUE = 0
    CONCATENATE = 1
    REVERSE = 2


class TripLimit(ContractEnum):
    """What ends a loop: a count, or a condition that becomes false."""

    COUNT = 0
    WHILE = 1


class BoundingBoxFormat(ContractEnum):
    """What the four numbers of a box are."""

    CORNER_PAIRS = 0
    CENTER_SIZES = 1


class FillOperation(ContractEnum):
    """What a fill layer writes."""

    LINSPACE = 0
    RANDOM_UNIFORM = 1
    RANDOM_NORMAL = 2


class CumulativeOperation(ContractEnum):
    """What a cumulative layer accumulates."""

    SUM = 0


class AttentionNormalizationOp(ContractEnum):
    """What is done to the scores of an attention."""

    NONE = 0
    SOFTMAX = 1


class AttentionIOForm(ContractEnum):
    """How sequences of different length lie in a tensor: padded to the longest, or packed end to end."""

    PADDED_BHND = 0
    PACKED_NHD = 1


class CausalMaskKind(ContractEnum):
    """Which corner of the scores the causal diagonal is anchored at."""

    NONE = 0
    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class KVCacheMode(ContractEnum):
    """Where an update goes in a key-value cache."""

    LINEAR = 0


class MoEActType(ContractEnum):
    """The activation of a mixture of experts."""

    NONE = 0
    SILU = 1
