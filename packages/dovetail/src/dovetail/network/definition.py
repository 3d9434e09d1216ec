"""The network API: what to compute, said with tensors and layers, held as an ONNX graph."""

from __future__ import annotations

from dovetail.network.conditionals import ConditionalLayers
from dovetail.network.layers.activation import ActivationLayers
from dovetail.network.layers.attention import AttentionLayers
from dovetail.network.layers.basic import BasicLayers
from dovetail.network.layers.convolution import ConvolutionLayers
from dovetail.network.layers.elementwise import ElementWiseLayers
from dovetail.network.layers.fill import FillLayers
from dovetail.network.layers.gather import GatherLayers
from dovetail.network.layers.matrix import MatrixLayers
from dovetail.network.layers.nms import NMSLayers
from dovetail.network.layers.normalization import NormalizationLayers
from dovetail.network.layers.plugin import PluginLayers
from dovetail.network.layers.pooling import PoolingLayers
from dovetail.network.layers.quantize import QuantizeLayers
from dovetail.network.layers.reduce import ReduceLayers
from dovetail.network.layers.resize import ResizeLayers
from dovetail.network.layers.shuffle import ShuffleLayers
from dovetail.network.layers.slice import SliceLayers
from dovetail.network.layers.special import SpecialLayers
from dovetail.network.loops import LoopLayers

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
):
    """A network under construction.

    >>> from dovetail.network.enums import ActivationType
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


INetworkDefinition = Network
