"""Works on integers and nothing else."""

from __future__ import annotations

from typing import Any

from dovetail.types import DataType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class IntegersOnly(Layer):
    TYPES = (DataType.INT32, DataType.INT64)

    def compute(self, x: Any, y: Any) -> None:
        y[...] = x % 5


creator = LayerCreator(IntegersOnly)
