"""Written as public samples are: fields in a loop, a dictionary copied, shapes as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.expr import DimensionOperation, DimsExprs
from dovetail.plugin.fields import PluginField, PluginFieldCollection, PluginFieldType
from dovetail.plugin.interfaces import IPluginCreatorV3One
from dovetail.types import DataType, TensorFormat
from tests.null.plugin.check.corpus.layer import Layer


class PaddingOfASample(Layer):
    def __init__(self, fc: Any = None, phase: Any = None) -> None:
        super().__init__()
        self.pads: Any = []
        self.X_shape: Any = []
        for field in fc or []:
            if field.name == "pads":
                self.pads = field.data

    def clone(self) -> Any:
        cloned = PaddingOfASample()
        cloned.__dict__.update(self.__dict__)
        return cloned

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        shape = DimsExprs(inputs[0])
        for i in range(len(self.pads) // 2):
            axis = len(shape) - i - 1
            extra = exprBuilder.constant(int(self.pads[i * 2] + self.pads[i * 2 + 1]))
            shape[axis] = exprBuilder.operation(DimensionOperation.SUM, inputs[0][axis], extra)
        return [shape]

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> Any:
        assert num_inputs == 1
        assert pos < len(in_out)
        desc = in_out[pos].desc
        if desc.format != TensorFormat.LINEAR:
            return False
        return desc.type in (DataType.FLOAT, DataType.HALF) and (pos == 0 or in_out[0].desc.type == desc.type)

    def get_valid_tactics(self) -> Any:
        return [1, 2]

    def set_tactic(self, tactic: int) -> Any:
        self.tactic = tactic

    def on_shape_change(self, in_: Any, out: Any) -> Any:
        assert self.tactic in (1, 2)
        self.X_shape = np.zeros((len(in_[0].dims),))
        for i in range(len(in_[0].dims)):
            self.X_shape[i] = in_[0].dims[i]

    def get_fields_to_serialize(self) -> Any:
        return PluginFieldCollection([PluginField("pads", self.pads, PluginFieldType.INT32)])

    def compute(self, x: Any, y: Any) -> None:
        widths = [(0, 0)] * x.ndim
        for i in range(len(self.pads) // 2):
            widths[x.ndim - i - 1] = (int(self.pads[i * 2]), int(self.pads[i * 2 + 1]))
        y[...] = np.pad(x, widths, "wrap")


class SampleCreator(IPluginCreatorV3One):
    def __init__(self) -> None:
        super().__init__()
        self.name, self.plugin_namespace, self.plugin_version = "PaddingOfASample", "", "1"
        self.field_names = PluginFieldCollection([PluginField("pads", np.array([]), PluginFieldType.INT32)])

    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
        return PaddingOfASample(field_collection, phase)


creator = SampleCreator()
