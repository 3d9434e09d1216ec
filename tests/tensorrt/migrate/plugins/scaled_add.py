"""Two inputs, annotations everywhere, a helper and a property: IPluginV2DynamicExt by another alias."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import tensorrt

from dovetail.plugin import as_array


def _is_linear(desc: tensorrt.PluginTensorDesc) -> bool:
    return desc.format == tensorrt.TensorFormat.LINEAR


class ScaledAdd(tensorrt.IPluginV2DynamicExt):
    """z = alpha * x + y, computed in the workspace first."""

    def __init__(self, alpha: float = 1.0) -> None:
        tensorrt.IPluginV2DynamicExt.__init__(self)
        self.alpha = alpha
        self.num_outputs = 1
        self.plugin_namespace = ""

    @property
    def plugin_type(self) -> str:
        return "ScaledAdd"

    @property
    def plugin_version(self) -> str:
        return "1"

    def get_output_datatype(self, index: int, input_types: Sequence[tensorrt.DataType]) -> tensorrt.DataType:
        if input_types[0] != input_types[1]:
            raise ValueError("x and y have different types")
        return input_types[0]

    def get_output_dimensions(
        self, output_index: int, inputs: Sequence[tensorrt.DimsExprs], exprBuilder: tensorrt.IExprBuilder
    ) -> tensorrt.DimsExprs:
        def widest(axis: int):
            # broadcasting: a dimension of one takes the other's size
            return exprBuilder.operation(tensorrt.DimensionOperation.MAX, inputs[0][axis], inputs[1][axis])

        return tensorrt.DimsExprs([widest(axis) for axis in range(len(inputs[0]))])

    def supports_format_combination(
        self, pos: int, in_out: Sequence[tensorrt.PluginTensorDesc], num_inputs: int
    ) -> bool:
        return _is_linear(in_out[pos]) and in_out[pos].type == in_out[0].type == tensorrt.float32

    def configure_plugin(self, in_: Sequence, out: Sequence) -> None:
        """Keep nothing."""

    def get_workspace_size(self, input_desc, output_desc) -> int:
        count = 1
        for size in output_desc[0].dims:
            count *= size
        return count * tensorrt.float32.itemsize

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x, y = (as_array(address, desc) for address, desc in zip(inputs, input_desc, strict=True))
        z = as_array(outputs[0], output_desc[0])
        if z.size == 0:
            return
        scratch = as_array(workspace, output_desc[0])
        np.multiply(x, np.float32(self.alpha), out=scratch)
        np.add(scratch, y, out=z)

    def serialize(self) -> bytes:
        return json.dumps({"alpha": self.alpha}).encode()

    def clone(self) -> ScaledAdd:
        return ScaledAdd(self.alpha)


class ScaledAddCreator(tensorrt.IPluginCreator):
    def __init__(self) -> None:
        tensorrt.IPluginCreator.__init__(self)
        self.name = "ScaledAdd"
        self.plugin_version = "1"
        self.plugin_namespace = ""
        self.field_names = tensorrt.PluginFieldCollection(
            [tensorrt.PluginField("alpha", np.array([1], np.float32), tensorrt.PluginFieldType.FLOAT32)]
        )

    def create_plugin(self, name: str, fc: tensorrt.PluginFieldCollection) -> ScaledAdd:
        for field in fc:
            if field.name == "alpha":
                return ScaledAdd(float(field.data[0]))
        return ScaledAdd()

    def deserialize_plugin(self, name: str, data: bytes) -> ScaledAdd:
        return ScaledAdd(**json.loads(data))


def build(shape: tuple[int, ...]):
    """A plan with the layer, as scripts make one."""
    builder = tensorrt.Builder(tensorrt.Logger(tensorrt.Logger.ERROR))
    network = builder.create_network()
    x = network.add_input("x", tensorrt.float32, shape)
    y = network.add_input("y", tensorrt.float32, shape)
    fields = tensorrt.PluginFieldCollection([])
    plugin = ScaledAddCreator().create_plugin("ScaledAdd", fields)
    layer = network.add_plugin_v2(inputs=[x, y], plugin=plugin)
    network.mark_output(layer.get_output(0))
    return builder.build_serialized_network(network, builder.create_builder_config())
