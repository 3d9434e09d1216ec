"""Nodes of an imported ONNX model as layers: each keeps its node and writes a copy of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import onnx_ir as ir

from dovetail.network.api.enums import LayerType
from dovetail.network.api.layers.base import ILayer
from dovetail.network.api.layers.onnx_properties import PROPERTIES, read_operation
from dovetail.network.plugins import entry_of
from dovetail.provider.schemas.shape_slots import reads_only_shape, size_slots

if TYPE_CHECKING:
    from dovetail.network.api.core import NetworkCore
    from dovetail.network.api.emission import Emitter
    from dovetail.network.api.tensor import ITensor

__all__ = ["IOnnxNodeLayer"]

_FAMILIES: Final[Mapping[str, str]] = {
    "ACTIVATION": """Relu Sigmoid Tanh LeakyRelu Elu Selu Softsign Softplus Clip HardSigmoid ThresholdedRelu Gelu
        HardSwish Celu Mish""",
    "ASSERTION": "Assert",
    "ATTENTION_OUTPUT": "Attention",
    "CAST": "Cast CastLike",
    "CONCATENATION": "Concat",
    "CONDITIONAL_OUTPUT": "If",
    "CONSTANT": "Constant",
    "CONVOLUTION": "Conv ConvInteger QLinearConv",
    "CUMULATIVE": "CumSum",
    "DECONVOLUTION": "ConvTranspose",
    "DEQUANTIZE": "DequantizeLinear",
    "EINSUM": "Einsum",
    "ELEMENTWISE": """Add Sub Mul Div Pow Max Min And Or Xor Equal Greater Less GreaterOrEqual LessOrEqual Mod Sum
        Mean BitShift""",
    "FILL": "ConstantOfShape Range RandomNormal RandomUniform RandomNormalLike RandomUniformLike EyeLike",
    "GATHER": "Gather GatherElements GatherND",
    "GRID_SAMPLE": "GridSample",
    "IDENTITY": "Identity Dropout",
    "LOOP_OUTPUT": "Loop Scan",
    "LRN": "LRN",
    "MATRIX_MULTIPLY": "MatMul Gemm MatMulInteger QLinearMatMul",
    "NMS": "NonMaxSuppression",
    "NON_ZERO": "NonZero",
    "NORMALIZATION": """BatchNormalization InstanceNormalization LayerNormalization GroupNormalization
        RMSNormalization MeanVarianceNormalization LpNormalization""",
    "ONE_HOT": "OneHot",
    "PADDING": "Pad",
    "PARAMETRIC_RELU": "PRelu",
    "POOLING": "MaxPool AveragePool GlobalMaxPool GlobalAveragePool LpPool GlobalLpPool",
    "QUANTIZE": "QuantizeLinear",
    "REDUCE": """ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp
        ReduceSumSquare""",
    "RESIZE": "Resize Upsample",
    "REVERSE_SEQUENCE": "ReverseSequence",
    "ROTARY_EMBEDDING": "RotaryEmbedding",
    "SCATTER": "Scatter ScatterElements ScatterND",
    "SELECT": "Where",
    "SHAPE": "Shape Size",
    "SHUFFLE": "Reshape Transpose Flatten DepthToSpace SpaceToDepth Expand Tile",
    "SLICE": "Slice Split",
    "SOFTMAX": "Softmax LogSoftmax Hardmax",
    "SQUEEZE": "Squeeze",
    "TOPK": "TopK ArgMax ArgMin",
    "UNARY": """Exp Log Sqrt Reciprocal Abs Neg Sin Cos Tan Sinh Cosh Asin Acos Atan Asinh Acosh Atanh Ceil Floor Erf
        Not Sign Round IsInf IsNaN""",
    "UNSQUEEZE": "Unsqueeze",
}
_TYPES: Final = {op: LayerType[family] for family, ops in _FAMILIES.items() for op in ops.split()}


class IOnnxNodeLayer(ILayer):
    """One node of a model. Its ``type`` is the kind of layer that computes the like, PLUGIN where there is none.

    Tensors that only the bodies of a node read are inputs after those of the node itself.
    """

    __slots__ = (
        "_body_constants",
        "_captured",
        "_kind",
        "_layer_type",
        "_node",
        "_num_own",
        "_plugin_offset",
        "_reads_only_shapes",
        "_required_inputs",
        "_shape_inputs",
        "_stored",
    )

    def __init__(self, network: NetworkCore, node: ir.Node, inputs: Sequence[ITensor | None], **given: Any) -> None:
        self._kind = node.op_type
        self._layer_type = _TYPES.get(node.op_type, LayerType.PLUGIN)
        self._shape_inputs = size_slots(node.op_type, node.domain)
        self._reads_only_shapes = reads_only_shape(node.op_type, node.domain)
        super().__init__(network, [*inputs, *given["captured"].values()], num_outputs=len(node.outputs))
        self._node = node
        self._num_own = len(inputs)
        self._captured: Mapping[ir.Value, int] = {value: self._num_own + i for i, value in enumerate(given["captured"])}
        """Value of the model that bodies read -> which input it is."""
        self._stored: Mapping[int, ir.Value] = given["stored"]
        """Inputs that are constants of types which no tensor has, by index."""
        self._body_constants: Sequence[ir.Value] = given["body_constants"]
        """Such constants that bodies read."""
        self._plugin_offset: int = given["plugin_offset"]
        self._required_inputs = self._max_inputs

    @property
    def type(self) -> Any:
        """The kind of layer; the operation once the layer was taken for one of activation or pooling."""
        operation = None if self._taken_for is None else read_operation(self._node)
        return self._layer_type if operation is None else operation

    def __getattr__(self, name: str) -> Any:
        """What a layer of the network's own kinds would say, as far as the node says it."""
        read = None if name.startswith("_") else PROPERTIES.get(self._layer_type, {}).get(name)
        if read is None:
            raise AttributeError(f"a layer that was read from a model has no '{name}'", name=name, obj=self)
        return read(self._node)

    def __setattr__(self, name: str, value: object) -> None:
        if not hasattr(type(self), name) and name in PROPERTIES.get(self._layer_type, {}):
            text = f"{name!r} of layer {self._name!r} cannot be set: the layer keeps a node of a model"
            raise AttributeError(f"{text}\n  fix: add a layer of the network API in its place", name=name, obj=self)
        super().__setattr__(name, value)

    @property
    def op_type(self) -> str:
        """The operator of the node."""
        return self._node.op_type

    @property
    def domain(self) -> str:
        """The domain of the operator; empty for ONNX's own."""
        return self._node.domain

    @property
    def _max_inputs(self) -> int:
        return len(self._inputs)

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        inputs = [self._input_value(e, index) for index in range(self._num_own)]
        node = ir.Node(
            self._node.domain,
            self._node.op_type,
            inputs,
            [self._copy_attribute(attribute, e) for attribute in self._node.attributes.values()],
            overload=self._node.overload,
            num_outputs=len(self._node.outputs),
            metadata_props=dict(self._node.metadata_props),
        )
        node.meta.update(self._node.meta)
        outputs = e.add_node(node)
        for made, told in zip(outputs, self._node.outputs, strict=True):
            self._restore(made, told)
        return outputs

    def _restore(self, made: ir.Value, told: ir.Value) -> None:
        """Where inference knows nothing, take what the import knew; shapes only while the inputs have theirs."""
        made.type = made.type or told.type
        if made.shape is None and told.shape is not None and self._network._has_imported_shapes():
            made.shape = ir.Shape([dim if isinstance(dim, int) else None for dim in told.shape])

    def _input_value(self, e: Emitter, index: int) -> ir.Value | None:
        if index in self._stored:
            return e.stored(self._stored[index])
        return e.optional_input(index)

    def _copy_attribute(self, attribute: ir.Attr, e: Emitter) -> ir.Attr:
        if attribute.type != ir.AttributeType.GRAPH:
            return attribute
        body = attribute.as_graph().clone(allow_outer_scope_values=True)
        values = {value: e.input(index) for value, index in self._captured.items()}
        self._rewire(body, values | {value: e.stored(value) for value in self._body_constants})
        return ir.AttrGraph(attribute.name, body)

    def _rewire(self, graph: ir.Graph, values: Mapping[ir.Value, ir.Value]) -> None:
        """Have a body read the values of this writing in place of those of the model."""
        for node in graph:
            for index, value in enumerate(node.inputs):
                if value is not None and value in values:
                    node.replace_input_with(index, values[value])
            if entry_of(node) is not None:
                number = node.attributes["plugin"].as_int() + self._plugin_offset
                node.attributes["plugin"] = ir.AttrInt64("plugin", number)
            for attribute in node.attributes.values():
                if attribute.type == ir.AttributeType.GRAPH:
                    self._rewire(attribute.as_graph(), values)
        for index, value in enumerate(graph.outputs):
            if value in values:
                graph.outputs[index] = values[value]
