"""Refuses inputs without elements, with a reason."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class RefusesNothing(Layer):
    def compute(self, x: Any, y: Any) -> None:
        if not x.size:
            raise ValueError("there must be at least one element")
        y[...] = x / (1 + np.abs(x).max())


creator = LayerCreator(RefusesNothing)
