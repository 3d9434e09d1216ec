"""R68: The global generator is seeded to make noise repeatable."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class SeedsGlobally(Layer):
    def compute(self, x: Any, y: Any) -> None:
        np.random.seed(7)
        y[...] = x + np.random.standard_normal(x.shape)


creator = LayerCreator(SeedsGlobally)
