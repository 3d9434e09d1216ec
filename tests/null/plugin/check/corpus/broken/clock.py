"""R46: The result depends on the time."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class Clock(Layer):
    def compute(self, x: Any, y: Any) -> None:
        y[...] = x + np.float32(time.perf_counter_ns() % 1000)


creator = LayerCreator(Clock)
