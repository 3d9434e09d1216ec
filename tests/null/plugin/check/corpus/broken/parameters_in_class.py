"""R69: A parameter is kept in the class, so that the latest layer decides for all."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dovetail.plugin.fields import PluginField, PluginFieldCollection, PluginFieldType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class ParametersInClass(Layer):
    FIELDS: ClassVar[dict[str, Any]] = {"alpha": (PluginFieldType.FLOAT32, 1.0)}
    alpha: float

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        ParametersInClass.scale = self.alpha

    scale: float

    def get_fields_to_serialize(self) -> Any:
        return PluginFieldCollection([PluginField("alpha", np.float32([self.scale]), PluginFieldType.FLOAT32)])

    def compute(self, x: Any, y: Any) -> None:
        y[...] = x * np.float32(self.scale)


creator = LayerCreator(ParametersInClass)
