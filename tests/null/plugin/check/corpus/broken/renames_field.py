"""R36: A plan stores a name that the creator does not know."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dovetail.plugin.fields import PluginField, PluginFieldCollection, PluginFieldType
from dovetail.types import TensorRTPhase
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class RenamesField(Layer):
    FIELDS: ClassVar[dict[str, Any]] = {"alpha": (PluginFieldType.FLOAT32, 1.0)}
    alpha: float

    def get_fields_to_serialize(self) -> Any:
        return PluginFieldCollection([PluginField("scale", np.float32([self.alpha]), PluginFieldType.FLOAT32)])

    def compute(self, x: Any, y: Any) -> None:
        y[...] = x * np.float32(self.alpha)


class ReadsAlpha(LayerCreator):
    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
        if phase == TensorRTPhase.RUNTIME:
            return RenamesField(alpha=float(field_collection.find("alpha").data[0]))
        return super().create_plugin(name, field_collection, phase)


creator = ReadsAlpha(RenamesField)
