"""The network API: what to compute, said with tensors and layers, held as an ONNX graph."""

from __future__ import annotations

from dovetail.network.api.conditionals import ConditionalLayers
from dovetail.network.api.layers.activation import ActivationLayers
from dovetail.network.api.layers.attention import AttentionLayers
from dovetail.network.api.layers.basic import BasicLayers
from dovetail.network.api.layers.convolution import ConvolutionLayers
from dovetail.network.api.layers.elementwise import ElementWiseLayers
from dovetail.network.api.layers.fill import FillLayers
from dovetail.network.api.layers.gather import GatherLayers
from dovetail.network.api.layers.matrix import MatrixLayers
from dovetail.network.api.layers.nms import NMSLayers
from dovetail.network.api.layers.normalization import NormalizationLayers
from dovetail.network.api.layers.plugin import PluginLayers
from dovetail.network.api.layers.pooling import PoolingLayers
from dovetail.network.api.layers.quantize import QuantizeLayers
from dovetail.network.api.layers.reduce import ReduceLayers
from dovetail.network.api.layers.resize import ResizeLayers
from dovetail.network.api.layers.shuffle import ShuffleLayers
from dovetail.network.api.layers.slice import SliceLayers
from dovetail.network.api.layers.special import SpecialLayers
from dovetail.network.api.loops import LoopLayers
from dovetail.network.api.models import ModelLayers

__all__ = ["INetworkDefinition", "Network"]


class Network(
    ConvolutionLayers,
    PoolingLayers,
    ActivationLayers,
    ElementWiseLayers,
    NormalizationLayers,
    BasicLayers,
    ShuffleLayers,
    SliceLayers,
    ReduceLayers,
    GatherLayers,
    MatrixLayers,
    ResizeLayers,
    NMSLayers,
    FillLayers,
    QuantizeLayers,
    AttentionLayers,
    PluginLayers,
    SpecialLayers,
    LoopLayers,
    ConditionalLayers,
    ModelLayers,
):
    """A network under construction.

    >>> from dovetail.network.api.enums import ActivationType
    >>> from dovetail.types import DataType
    >>> network = Network()
    >>> x = network.add_input("x", DataType.FLOAT, (-1, 3))
    >>> y = network.add_activation(x, ActivationType.RELU).get_output(0)
    >>> network.mark_output(y)
    >>> y.dtype.name, y.shape
    ('FLOAT', Dims(-1, 3))
    >>> [node.op_type for node in network.to_model().graph]
    ['Relu']
    """

    __slots__ = ()


INetworkDefinition = Network
