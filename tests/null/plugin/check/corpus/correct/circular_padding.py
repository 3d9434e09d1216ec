"""Pads by fields, and declares what comes out."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dovetail.expr import DimensionOperation, DimsExprs
from dovetail.plugin.fields import PluginFieldType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class CircularPadding(Layer):
    FIELDS: ClassVar[dict[str, Any]] = {"pads": (PluginFieldType.INT32, np.int32([1, 2]))}
    pads: Any

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        shape = DimsExprs(inputs[0])
        extra = exprBuilder.constant(int(self.pads[0] + self.pads[1]))
        shape[-1] = exprBuilder.operation(DimensionOperation.SUM, shape[-1], extra)
        return [shape]

    def compute(self, x: Any, y: Any) -> None:
        before = int(self.pads[0])
        columns = (np.arange(y.shape[-1]) - before) % x.shape[-1]
        y[...] = x[..., columns]


creator = LayerCreator(CircularPadding)
