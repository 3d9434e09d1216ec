"""Asks only that the types are the same; integers do not work."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.types import DataType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class TakesAnyType(Layer):
    TYPES = tuple(DataType)

    def compute(self, x: Any, y: Any) -> None:
        np.divide(x, 2, out=y)


creator = LayerCreator(TakesAnyType)
