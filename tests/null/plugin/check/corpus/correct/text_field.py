"""Has a text among its fields, which says what to do."""

from __future__ import annotations

from typing import Any

from dovetail.plugin.fields import PluginField, PluginFieldCollection, PluginFieldType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class TextField(Layer):
    def __init__(self, mode: str = "half") -> None:
        super().__init__()
        if mode not in ("half", "double"):
            raise ValueError(f"mode is {mode!r}, expected half or double")
        self.mode = mode

    def get_fields_to_serialize(self) -> Any:
        return PluginFieldCollection([PluginField("mode", self.mode.encode(), PluginFieldType.CHAR)])

    def compute(self, x: Any, y: Any) -> None:
        y[...] = x * {"half": 0.5, "double": 2}[self.mode]


class ReadsText(LayerCreator):
    def __init__(self) -> None:
        super().__init__(TextField)
        self.field_names = PluginFieldCollection([PluginField("mode", None, PluginFieldType.CHAR)])

    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
        found = field_collection.find("mode")
        return TextField() if found is None else TextField(bytes(found.data).decode())


creator = ReadsText()
