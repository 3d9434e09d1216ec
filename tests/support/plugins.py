"""Plugins for tests: small, correct, and written as users write them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

import dovetail as dt
from dovetail.plugin import as_array

Calls = list[tuple[str, Any]]


class ScalePlugin(dt.IPluginV3, dt.IPluginV3OneCore, dt.IPluginV3OneBuild, dt.IPluginV3OneRuntime):
    """y = x * factor, for any shape, LINEAR and CHW32 floats; two tactics that compute the same."""

    formats = (dt.TensorFormat.LINEAR, dt.TensorFormat.CHW32)
    types = (dt.float32, dt.float16)
    tactics = (1, 2)

    def __init__(self, factor: float = 2.0, calls: Calls | None = None) -> None:
        dt.IPluginV3.__init__(self)
        dt.IPluginV3OneCore.__init__(self)
        dt.IPluginV3OneBuild.__init__(self)
        dt.IPluginV3OneRuntime.__init__(self)
        self.plugin_name = "TestScale"
        self.plugin_version = "1"
        self.plugin_namespace = ""
        self.num_outputs = 1
        self.factor = factor
        self.tactic = 0
        self.calls = calls if calls is not None else []

    def note(self, method: str, detail: Any = None) -> None:
        self.calls.append((method, detail))

    def get_capability_interface(self, type: Any) -> Any:
        return self

    def clone(self) -> Any:
        self.note("clone")
        twin = type(self)(self.factor, self.calls)
        twin.__dict__.update(self.__dict__)
        return twin

    def get_output_data_types(self, input_types: Any) -> Any:
        self.note("get_output_data_types", list(input_types))
        return [input_types[0]]

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        self.note("get_output_shapes")
        return [dt.DimsExprs(inputs[0])]

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        desc = in_out[pos].desc
        self.note("supports_format_combination", (pos, desc.type, desc.format))
        same = pos == 0 or (desc.type == in_out[0].desc.type and desc.format == in_out[0].desc.format)
        return desc.format in self.formats and desc.type in self.types and same

    def configure_plugin(self, inputs: Any, outputs: Any) -> None:
        self.note("configure_plugin", (inputs[0].copy(), outputs[0].copy()))

    def get_valid_tactics(self) -> Any:
        self.note("get_valid_tactics")
        return list(self.tactics)

    def get_workspace_size(self, inputs: Any, outputs: Any) -> int:
        self.note("get_workspace_size")
        return 0

    def set_tactic(self, tactic: int) -> None:
        self.note("set_tactic", tactic)
        self.tactic = tactic

    def on_shape_change(self, inputs: Any, outputs: Any) -> None:
        self.note("on_shape_change", (inputs[0].copy(), outputs[0].copy()))

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int
    ) -> None:
        self.note("enqueue", threading.get_ident())
        x, y = as_array(inputs[0], input_desc[0]), as_array(outputs[0], output_desc[0])
        np.multiply(x, x.dtype.type(self.factor), out=y)

    def attach_to_context(self, context: Any) -> Any:
        self.note("attach_to_context")
        return self.clone()

    def get_fields_to_serialize(self) -> Any:
        self.note("get_fields_to_serialize")
        factor = np.array([self.factor], np.float32)
        return dt.PluginFieldCollection([dt.PluginField("factor", factor, dt.PluginFieldType.FLOAT32)])

    def destroy(self) -> None:
        self.note("destroy")


class PlainCreator(dt.IPluginCreatorV3One):
    """A creator from a function of fields."""

    def __init__(self, name: str, make: Callable[..., Any], fields: tuple[str, ...] = ("factor",)) -> None:
        dt.IPluginCreatorV3One.__init__(self)
        self.name = name
        self.plugin_version = "1"
        self.plugin_namespace = ""
        self.field_names = dt.PluginFieldCollection(
            [dt.PluginField(f, None, dt.PluginFieldType.FLOAT32) for f in fields]
        )
        self.phases: list[Any] = []
        self._make = make

    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
        self.phases.append(phase)
        return self._make(**{field.name: float(field.data[0]) for field in field_collection})


def build_engine(
    plugin: Any,
    creator: Any,
    *,
    shape: tuple[int, ...] = (2, 3, 4, 4),
    dtype: Any = dt.float32,
    profile: tuple[Any, Any, Any] | None = None,
    configure: Callable[[Any], None] | None = None,
) -> tuple[bytes, Any]:
    """A plan of one plugin between one input and one output, and the runtime that can load it."""
    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input("x", dtype, shape)
    layer = network.add_plugin_v3([x], [], plugin)
    layer.get_output(0).name = "y"
    network.mark_output(layer.get_output(0))
    config = builder.create_builder_config()
    if profile is not None:
        optimization = builder.create_optimization_profile()
        optimization.set_shape("x", *profile)
        config.add_optimization_profile(optimization)
    if configure is not None:
        configure(config)
    plan = builder.build_serialized_network(network, config)
    runtime = dt.Runtime()
    runtime.get_plugin_registry().register_creator(creator, "")
    return plan, runtime
