"""Plugins that keep every rule: what the broken ones are derived from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail.expr import DimensionOperation, DimsExprs, IExprBuilder
from dovetail.plugin.arrays import as_array, write_scalar
from dovetail.plugin.fields import PluginField, PluginFieldCollection, PluginFieldType
from dovetail.plugin.interfaces import (
    IPluginCapability,
    IPluginCreatorV3One,
    IPluginResourceContext,
    IPluginV3,
    IPluginV3OneBuild,
    IPluginV3OneBuildV2,
    IPluginV3OneCore,
    IPluginV3OneRuntime,
    PluginCapabilityType,
)
from dovetail.types import DataType, DynamicPluginTensorDesc, PluginTensorDesc, TensorFormat, TensorRTPhase

Descs = Sequence[PluginTensorDesc]
BuildDescs = Sequence[DynamicPluginTensorDesc]


class Scale(IPluginV3, IPluginV3OneCore, IPluginV3OneBuildV2, IPluginV3OneRuntime):
    """y = alpha * x, in fp32 and fp16, in every format, with two tactics."""

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self.plugin_name = "Scale"
        self.plugin_version = "1"
        self.plugin_namespace = ""
        self.num_outputs = 1
        self.timing_cache_id = f"alpha={alpha}"
        self.metadata_string = f"alpha={alpha}"
        self.alpha = alpha
        self.tactic = 0

    def get_capability_interface(self, type: PluginCapabilityType) -> IPluginCapability | None:
        return self

    def copy(self) -> Scale:
        twin = self.__class__.__new__(self.__class__)
        twin.__dict__.update(self.__dict__)
        return twin

    def clone(self) -> Scale:
        return self.copy()

    def get_output_data_types(self, input_types: Sequence[DataType]) -> list[DataType]:
        return [input_types[0]]

    def get_output_shapes(
        self, inputs: Sequence[DimsExprs], shape_inputs: Sequence[DimsExprs], exprBuilder: IExprBuilder
    ) -> list[DimsExprs]:
        return [DimsExprs(inputs[0])]

    def configure_plugin(self, in_: BuildDescs, out: BuildDescs) -> Any:
        return None

    def supports_format_combination(self, pos: int, in_out: BuildDescs, num_inputs: int) -> bool:
        assert num_inputs == 1
        desc, first = in_out[pos].desc, in_out[0].desc
        return desc.type in (DataType.FLOAT, DataType.HALF) and (desc.type, desc.format) == (first.type, first.format)

    def get_valid_tactics(self) -> list[int]:
        return [1, 2]

    def set_tactic(self, tactic: int) -> Any:
        self.tactic = tactic

    def on_shape_change(self, in_: Descs, out: Descs) -> Any:
        return None

    def enqueue(
        self,
        input_desc: Descs,
        output_desc: Descs,
        inputs: Sequence[int],
        outputs: Sequence[int],
        workspace: int,
        stream: int,
    ) -> Any:
        x, y = as_array(inputs[0], input_desc[0]), as_array(outputs[0], output_desc[0])
        alpha = x.dtype.type(self.alpha)
        if self.tactic == 2:
            np.multiply(x[::-1], alpha, out=y[::-1])
        else:
            np.multiply(x, alpha, out=y)

    def attach_to_context(self, resource_context: IPluginResourceContext) -> Scale:
        return self.copy()

    def get_fields_to_serialize(self) -> PluginFieldCollection:
        return PluginFieldCollection(
            [PluginField("alpha", np.array([self.alpha], np.float32), PluginFieldType.FLOAT32)]
        )


class ScaleCreator(IPluginCreatorV3One):
    plugin: type[Scale] = Scale

    def __init__(self) -> None:
        super().__init__()
        self.name = "Scale"
        self.plugin_version = "1"
        self.plugin_namespace = ""
        self.field_names = PluginFieldCollection([PluginField("alpha", None, PluginFieldType.FLOAT32)])

    def create_plugin(self, name: str, field_collection: PluginFieldCollection, phase: TensorRTPhase) -> Any:
        alpha = field_collection.find("alpha")
        return self.plugin() if alpha is None else self.plugin(float(alpha.data[0]))


class Positive(Scale):
    """The positive elements of x, and how many there are: a data-dependent shape."""

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__(alpha)
        self.num_outputs = 2

    def get_output_data_types(self, input_types: Sequence[DataType]) -> list[DataType]:
        return [input_types[0], DataType.INT32]

    def get_output_shapes(
        self, inputs: Sequence[DimsExprs], shape_inputs: Sequence[DimsExprs], exprBuilder: IExprBuilder
    ) -> list[DimsExprs]:
        upper = inputs[0][0]
        for dim in inputs[0][1:]:
            upper = exprBuilder.operation(DimensionOperation.PROD, upper, dim)
        half = exprBuilder.operation(DimensionOperation.FLOOR_DIV, upper, exprBuilder.constant(2))
        return [DimsExprs([exprBuilder.declare_size_tensor(1, half, upper)]), DimsExprs()]

    def supports_format_combination(self, pos: int, in_out: BuildDescs, num_inputs: int) -> bool:
        wanted = DataType.INT32 if pos == 2 else DataType.FLOAT
        return (in_out[pos].desc.type, in_out[pos].desc.format) == (wanted, TensorFormat.LINEAR)

    def enqueue(
        self,
        input_desc: Descs,
        output_desc: Descs,
        inputs: Sequence[int],
        outputs: Sequence[int],
        workspace: int,
        stream: int,
    ) -> Any:
        x = as_array(inputs[0], input_desc[0])
        found = x[x > 0] * np.float32(self.alpha)
        as_array(outputs[0], output_desc[0], shape=found.shape)[...] = found
        write_scalar(outputs[1], output_desc[1].type, found.size)


class Centred(Scale):
    """y = alpha * (x - mean of its row), with the means in the workspace."""

    def supports_format_combination(self, pos: int, in_out: BuildDescs, num_inputs: int) -> bool:
        return (in_out[pos].desc.type, in_out[pos].desc.format) == (DataType.FLOAT, TensorFormat.LINEAR)

    def get_workspace_size(self, in_: BuildDescs, out: BuildDescs) -> int:
        return 4 * int(np.prod(in_[0].max[:-1], dtype=np.int64))

    def enqueue(
        self,
        input_desc: Descs,
        output_desc: Descs,
        inputs: Sequence[int],
        outputs: Sequence[int],
        workspace: int,
        stream: int,
    ) -> Any:
        x, y = as_array(inputs[0], input_desc[0]), as_array(outputs[0], output_desc[0])
        means = as_array(workspace, input_desc[0], shape=input_desc[0].dims[:-1])
        np.mean(x, axis=-1, out=means)
        np.subtract(x, means[..., None], out=y)
        np.multiply(y, np.float32(self.alpha), out=y)


class InPlace(Scale):
    """y = alpha * x where y is x."""

    def get_aliased_input(self, output_index: int) -> int:
        return 0


class _Core(IPluginV3OneCore):
    def __init__(self) -> None:
        super().__init__()
        self.plugin_name, self.plugin_version, self.plugin_namespace = "Parts", "1", ""


class _Build(IPluginV3OneBuild):
    def __init__(self) -> None:
        super().__init__()
        self.num_outputs = 1

    get_output_data_types = Scale.get_output_data_types
    get_output_shapes = Scale.get_output_shapes
    configure_plugin = Scale.configure_plugin
    supports_format_combination = Scale.supports_format_combination
    get_valid_tactics = Scale.get_valid_tactics


class _Runtime(IPluginV3OneRuntime):
    def __init__(self, whole: Parts, alpha: float) -> None:
        super().__init__()
        self.whole, self.alpha, self.tactic = whole, alpha, 0

    on_shape_change = Scale.on_shape_change
    set_tactic = Scale.set_tactic
    enqueue = Scale.enqueue
    get_fields_to_serialize = Scale.get_fields_to_serialize

    def attach_to_context(self, resource_context: IPluginResourceContext) -> Parts:
        return self.whole.clone()


class Parts(IPluginV3):
    """The same layer with its capabilities in three objects."""

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self.parts: dict[PluginCapabilityType, IPluginCapability] = {
            PluginCapabilityType.CORE: _Core(),
            PluginCapabilityType.BUILD: _Build(),
            PluginCapabilityType.RUNTIME: _Runtime(self, alpha),
        }

    def get_capability_interface(self, type: PluginCapabilityType) -> IPluginCapability | None:
        return self.parts[type]

    def clone(self) -> Parts:
        runtime = self.parts[PluginCapabilityType.RUNTIME]
        assert isinstance(runtime, _Runtime)
        twin = Parts(runtime.alpha)
        copied = twin.parts[PluginCapabilityType.RUNTIME]
        assert isinstance(copied, _Runtime)
        copied.tactic = runtime.tactic
        return twin


class PartsCreator(IPluginCreatorV3One):
    def __init__(self) -> None:
        super().__init__()
        self.name, self.plugin_version = "Parts", "1"
        self.field_names = PluginFieldCollection([PluginField("alpha", None, PluginFieldType.FLOAT32)])

    def create_plugin(self, name: str, field_collection: PluginFieldCollection, phase: TensorRTPhase) -> Any:
        alpha = field_collection.find("alpha")
        return Parts() if alpha is None else Parts(float(alpha.data[0]))


def creator_of(plugin: type[Any]) -> ScaleCreator:
    """A creator for a class that is made like ``Scale``."""
    creator = ScaleCreator()
    creator.plugin = plugin
    return creator
