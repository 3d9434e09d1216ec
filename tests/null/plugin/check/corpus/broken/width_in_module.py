"""R54: The width of the latest context is kept in the module."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator

_CURRENT = {"width": 0}


class WidthInModule(Layer):
    def on_shape_change(self, in_: Any, out: Any) -> Any:
        _CURRENT["width"] = in_[0].dims[-1]

    def compute(self, x: Any, y: Any) -> None:
        y[...] = x / np.float32(_CURRENT["width"])


creator = LayerCreator(WidthInModule)
