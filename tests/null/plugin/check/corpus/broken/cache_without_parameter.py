"""R69 R65: Tables are cached by width, though they depend on a parameter too."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dovetail.plugin.fields import PluginFieldType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator

_TABLES: dict[int, Any] = {}


class CacheWithoutParameter(Layer):
    FIELDS: ClassVar[dict[str, Any]] = {"alpha": (PluginFieldType.FLOAT32, 1.0)}
    alpha: float

    def compute(self, x: Any, y: Any) -> None:
        width = x.shape[-1]
        if width not in _TABLES:
            _TABLES[width] = np.float32(self.alpha) * np.arange(width, dtype=np.float32)
        y[...] = x + _TABLES[width]


creator = LayerCreator(CacheWithoutParameter)
