"""V2 plugins that note every call, for tests of the order of their lives."""

from __future__ import annotations

from typing import Any

import numpy as np

import dovetail as dt
from dovetail.plugin import as_array
from dovetail_tensorrt import v2

CALLS: list[str] = []


class NotedPlugin(v2.IPluginV2DynamicExt):
    """y = factor * x, in two formats; each object has a letter, and clones get the next one."""

    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    formats: tuple[Any, ...] = (dt.TensorFormat.LINEAR,)

    def __init__(self, factor: float = 2.0) -> None:
        super().__init__()
        self.plugin_type, self.plugin_version, self.plugin_namespace = "Noted", "1", ""
        self.num_outputs = 1
        self.factor = factor
        self.configured: Any = None
        self.resource: list[float] | None = None
        self.allocator: Any = None

    def note(self, text: str) -> None:
        CALLS.append(text)

    def get_output_datatype(self, index: int, input_types: Any) -> Any:
        return input_types[0]

    def get_output_dimensions(self, output_index: int, inputs: Any, exprBuilder: Any) -> Any:
        return dt.DimsExprs(inputs[0])

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        desc = in_out[pos]
        assert type(desc) is dt.PluginTensorDesc
        return desc.type == dt.float32 and desc.format in self.formats and desc.format == in_out[0].format

    def configure_plugin(self, in_: Any, out: Any) -> None:
        self.configured = tuple(in_[0].desc.dims)
        self.note(f"configure {self.configured} {tuple(in_[0].min)}..{tuple(in_[0].max)}")

    def initialize(self) -> Any:
        self.note("initialize")
        self.resource = [self.factor]

    def terminate(self) -> None:
        self.note("terminate")
        self.resource = None

    def attach_to_context(self, cudnn: Any, cublas: Any, allocator: Any) -> None:
        assert (cudnn, cublas) == (None, None)
        self.note("attach")
        self.allocator = allocator

    def detach_from_context(self) -> None:
        self.note("detach")

    def get_workspace_size(self, in_: Any, out: Any) -> int:
        self.note(f"workspace {tuple(in_[0].dims)}")
        return 4 * int(np.prod(in_[0].dims))

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        assert self.resource is not None
        assert self.configured == tuple(input_desc[0].dims)
        self.note("enqueue")
        as_array(outputs[0], output_desc[0])[...] = as_array(inputs[0], input_desc[0]) * np.float32(self.resource[0])

    def serialize(self) -> Any:
        self.note("serialize")
        return str(self.factor)

    def destroy(self) -> None:
        self.note("destroy")

    def clone(self) -> Any:
        self.note("clone")
        twin = type(self)(self.factor)
        twin.__dict__.update(self.__dict__)
        return twin


class NotedCreator(v2.IPluginCreator):
    plugin_class: type[Any] = NotedPlugin

    def __init__(self) -> None:
        super().__init__()
        self.name, self.plugin_version, self.plugin_namespace = "Noted", "1", ""
        self.field_names = dt.PluginFieldCollection([])

    def create_plugin(self, name: str, field_collection: Any) -> Any:
        return self.plugin_class()

    def deserialize_plugin(self, name: str, serialized_plugin: bytes) -> Any:
        CALLS.append("deserialize")
        assert isinstance(serialized_plugin, bytes)
        return self.plugin_class(float(serialized_plugin.decode()))
