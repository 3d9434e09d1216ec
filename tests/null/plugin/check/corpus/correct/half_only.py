"""Takes HALF and nothing else, and computes in FLOAT."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.types import DataType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class HalfOnly(Layer):
    TYPES = (DataType.HALF,)

    def compute(self, x: Any, y: Any) -> None:
        wide = x.astype(np.float32)
        y[...] = wide / np.sqrt(1 + wide * wide)


creator = LayerCreator(HalfOnly)
