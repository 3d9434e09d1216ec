"""R65: it stores the number of an entry in a table that only this process has."""

from __future__ import annotations

from typing import Any, ClassVar

from dovetail.plugin.fields import PluginField, PluginFieldCollection, PluginFieldType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator

_TABLE: list[float] = []


class StoresAHandle(Layer):
    FIELDS: ClassVar[dict[str, tuple[PluginFieldType, Any]]] = {
        "bias": (PluginFieldType.FLOAT32, 1.0),
        "handle": (PluginFieldType.INT32, -1),
    }
    bias: float
    handle: int

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        if self.handle >= 0:
            self.bias = _TABLE[self.handle]

    def get_fields_to_serialize(self) -> Any:
        if self.bias not in _TABLE:
            _TABLE.append(self.bias)
        self.handle = _TABLE.index(self.bias)
        return PluginFieldCollection([self.field("handle")])

    def compute(self, *arrays: Any) -> None:
        arrays[1][...] = arrays[0] + self.bias


class StoresAHandleCreator(LayerCreator):
    def __init__(self) -> None:
        super().__init__(StoresAHandle)
        self.field_names = PluginFieldCollection([PluginField("bias", None, PluginFieldType.FLOAT32)])


creator = StoresAHandleCreator()
