"""R67: Fields are taken by their places."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dovetail.plugin.fields import PluginFieldType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class FieldsByPlace(Layer):
    FIELDS: ClassVar[dict[str, Any]] = {
        "alpha": (PluginFieldType.FLOAT32, 1.0),
        "beta": (PluginFieldType.FLOAT32, 0.0),
    }
    alpha: float
    beta: float

    def compute(self, x: Any, y: Any) -> None:
        y[...] = x * np.float32(self.alpha) + np.float32(self.beta)


class ByPlace(LayerCreator):
    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
        values = [float(field.data[0]) for field in field_collection]
        return FieldsByPlace(**dict(zip(("alpha", "beta"), values, strict=False)))


creator = ByPlace(FieldsByPlace)
