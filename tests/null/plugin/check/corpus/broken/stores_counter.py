"""R35: Each question for the fields changes them."""

from __future__ import annotations

from typing import Any, ClassVar

from dovetail.plugin.fields import PluginFieldType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class StoresCounter(Layer):
    FIELDS: ClassVar[dict[str, Any]] = {"asked": (PluginFieldType.INT32, 0)}
    asked: int

    def get_fields_to_serialize(self) -> Any:
        self.asked += 1
        return super().get_fields_to_serialize()


creator = LayerCreator(StoresCounter)
