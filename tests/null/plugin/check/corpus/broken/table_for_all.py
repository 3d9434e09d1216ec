"""R65: A table of the first width is used for all widths."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator

_TABLES: dict[str, Any] = {}


class TableForAll(Layer):
    def compute(self, x: Any, y: Any) -> None:
        scale = _TABLES.setdefault("scale", np.float32(x.shape[-1]))
        y[...] = x * scale


creator = LayerCreator(TableForAll)
