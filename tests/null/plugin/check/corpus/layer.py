"""A small plugin to derive others from: one elementwise layer with fields, in LINEAR format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from dovetail.expr import DimsExprs
from dovetail.plugin.arrays import as_array
from dovetail.plugin.fields import PluginField, PluginFieldCollection, PluginFieldType
from dovetail.plugin.interfaces import (
    IPluginCreatorV3One,
    IPluginV3,
    IPluginV3OneBuild,
    IPluginV3OneCore,
    IPluginV3OneRuntime,
)
from dovetail.types import DataType, TensorFormat

_ARRAYS = {PluginFieldType.FLOAT32: np.float32, PluginFieldType.INT32: np.int32, PluginFieldType.INT64: np.int64}


class Layer(IPluginV3, IPluginV3OneCore, IPluginV3OneBuild, IPluginV3OneRuntime):
    """y = x; subclasses override what they do otherwise."""

    FIELDS: ClassVar[dict[str, tuple[PluginFieldType, Any]]] = {}
    TYPES: ClassVar[Sequence[DataType]] = (DataType.FLOAT,)
    FORMATS: ClassVar[Sequence[TensorFormat]] = (TensorFormat.LINEAR,)
    OUTPUTS: ClassVar[int] = 1

    def __init__(self, **fields: Any) -> None:
        super().__init__()
        self.plugin_name = type(self).__name__
        self.plugin_version = "1"
        self.plugin_namespace = ""
        self.num_outputs = self.OUTPUTS
        self.tactic = 0
        for name, (_, default) in self.FIELDS.items():
            setattr(self, name, fields.get(name, default))

    def get_capability_interface(self, type: Any) -> Any:
        return self

    def clone(self) -> Any:
        twin = self.__class__.__new__(self.__class__)
        twin.__dict__.update(self.__dict__)
        return twin

    def get_output_data_types(self, input_types: Any) -> Any:
        return [input_types[0]] * self.num_outputs

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        return [DimsExprs(inputs[0]) for _ in range(self.num_outputs)]

    def configure_plugin(self, in_: Any, out: Any) -> Any:
        return None

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> Any:
        desc, first = in_out[pos].desc, in_out[0].desc
        return (
            desc.type in self.TYPES
            and desc.format in self.FORMATS
            and (desc.type, desc.format)
            == (
                first.type,
                first.format,
            )
        )

    def set_tactic(self, tactic: int) -> Any:
        self.tactic = tactic

    def on_shape_change(self, in_: Any, out: Any) -> Any:
        return None

    def attach_to_context(self, resource_context: Any) -> Any:
        return self.clone()

    def get_fields_to_serialize(self) -> Any:
        return PluginFieldCollection([self.field(name) for name in self.FIELDS])

    def field(self, name: str) -> PluginField:
        kind = self.FIELDS[name][0]
        return PluginField(name, np.atleast_1d(np.asarray(getattr(self, name), _ARRAYS[kind])), kind)

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        arrays = [as_array(address, desc) for address, desc in zip(inputs, input_desc, strict=True)]
        arrays += [as_array(address, desc) for address, desc in zip(outputs, output_desc, strict=True)]
        self.compute(*arrays)

    def compute(self, *arrays: Any) -> None:
        arrays[1][...] = arrays[0]


class LayerCreator(IPluginCreatorV3One):
    """Creates a layer of one class, its fields found by name."""

    def __init__(self, layer: type[Layer]) -> None:
        super().__init__()
        self.layer = layer
        self.name, self.plugin_version, self.plugin_namespace = layer.__name__, "1", ""
        self.field_names = PluginFieldCollection(
            [PluginField(name, None, kind) for name, (kind, _) in layer.FIELDS.items()]
        )

    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
        return self.layer(**self.read(field_collection))

    def read(self, field_collection: Any) -> dict[str, Any]:
        defaults = {name: default for name, (_, default) in self.layer.FIELDS.items()}
        known = [field for field in field_collection if field.name in defaults]
        return {f.name: f.data if np.ndim(defaults[f.name]) else f.data[0].item() for f in known}
