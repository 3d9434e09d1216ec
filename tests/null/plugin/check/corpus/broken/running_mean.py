"""R47: The mean of all runs so far is subtracted."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class RunningMean(Layer):
    mean = 0.0

    def compute(self, x: Any, y: Any) -> None:
        self.mean = 0.9 * self.mean + 0.1 * float(x.mean())
        y[...] = x - np.float32(self.mean)


creator = LayerCreator(RunningMean)
