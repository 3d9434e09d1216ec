"""R44: A row has at most 32 columns, it was thought."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class ThirtyTwoColumns(Layer):
    def compute(self, x: Any, y: Any) -> None:
        y[..., :32] = np.exp(x[..., :32])


creator = LayerCreator(ThirtyTwoColumns)
