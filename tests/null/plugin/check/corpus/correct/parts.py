"""Has its capabilities in three objects."""

from __future__ import annotations

from typing import Any

from dovetail.expr import DimsExprs
from dovetail.plugin.arrays import as_array
from dovetail.plugin.fields import PluginFieldCollection
from dovetail.plugin.interfaces import (
    IPluginCreatorV3One,
    IPluginV3,
    IPluginV3OneBuild,
    IPluginV3OneCore,
    IPluginV3OneRuntime,
    PluginCapabilityType,
)
from dovetail.types import DataType, TensorFormat


class Core(IPluginV3OneCore):
    def __init__(self) -> None:
        super().__init__()
        self.plugin_name, self.plugin_version, self.plugin_namespace = "Parts", "1", "corpus"


class Build(IPluginV3OneBuild):
    def __init__(self) -> None:
        super().__init__()
        self.num_outputs = 1

    def get_output_data_types(self, input_types: Any) -> Any:
        return [input_types[0]]

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        return [DimsExprs(inputs[0])]

    def configure_plugin(self, in_: Any, out: Any) -> Any:
        return None

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> Any:
        return in_out[pos].desc.type == DataType.FLOAT and in_out[pos].desc.format == TensorFormat.LINEAR


class Runtime(IPluginV3OneRuntime):
    def set_tactic(self, tactic: int) -> Any:
        return None

    def on_shape_change(self, in_: Any, out: Any) -> Any:
        return None

    def attach_to_context(self, resource_context: Any) -> Any:
        return Parts()

    def get_fields_to_serialize(self) -> Any:
        return PluginFieldCollection()

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        as_array(outputs[0], output_desc[0])[...] = -as_array(inputs[0], input_desc[0])


class Parts(IPluginV3):
    def __init__(self) -> None:
        super().__init__()
        self.parts = {
            PluginCapabilityType.CORE: Core(),
            PluginCapabilityType.BUILD: Build(),
            PluginCapabilityType.RUNTIME: Runtime(),
        }

    def get_capability_interface(self, type: Any) -> Any:
        return self.parts[type]

    def clone(self) -> Any:
        return Parts()


class PartsCreator(IPluginCreatorV3One):
    def __init__(self) -> None:
        super().__init__()
        self.name, self.plugin_version, self.plugin_namespace = "Parts", "1", "corpus"
        self.field_names = PluginFieldCollection()

    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
        return Parts()


creator = PartsCreator()
