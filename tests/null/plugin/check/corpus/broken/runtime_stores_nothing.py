"""R37: An object made from a plan stores nothing."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dovetail.plugin.fields import PluginFieldCollection, PluginFieldType
from dovetail.types import TensorRTPhase
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class RuntimeStoresNothing(Layer):
    FIELDS: ClassVar[dict[str, Any]] = {"alpha": (PluginFieldType.FLOAT32, 1.0)}
    alpha: float
    is_revived = False

    def get_fields_to_serialize(self) -> Any:
        return PluginFieldCollection() if self.is_revived else super().get_fields_to_serialize()

    def compute(self, x: Any, y: Any) -> None:
        y[...] = x * np.float32(self.alpha)


class Revives(LayerCreator):
    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
        plugin = super().create_plugin(name, field_collection, phase)
        plugin.is_revived = phase == TensorRTPhase.RUNTIME
        return plugin


creator = Revives(RuntimeStoresNothing)
