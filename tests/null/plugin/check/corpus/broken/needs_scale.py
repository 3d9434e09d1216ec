"""R66: A required parameter is left out in half precision."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dovetail.plugin.fields import PluginFieldType
from dovetail.types import DataType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class NeedsScale(Layer):
    FIELDS: ClassVar[dict[str, Any]] = {"alpha": (PluginFieldType.FLOAT32, 1.0)}
    alpha: float
    TYPES = (DataType.FLOAT, DataType.HALF)

    def compute(self, x: Any, y: Any) -> None:
        y[...] = x if x.dtype == np.float16 else x * np.float32(self.alpha)


class Requires(LayerCreator):
    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
        return NeedsScale(alpha=float(field_collection.find("alpha").data[0]))


creator = Requires(NeedsScale)
