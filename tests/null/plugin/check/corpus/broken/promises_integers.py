"""R40: INT8 is accepted and cannot be computed."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.types import DataType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class PromisesIntegers(Layer):
    TYPES = (DataType.FLOAT, DataType.INT8)

    def compute(self, x: Any, y: Any) -> None:
        np.multiply(x, 0.5, out=y)


creator = LayerCreator(PromisesIntegers)
