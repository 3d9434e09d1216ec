"""R65: The result depends on the number of the process."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class NumberOfProcess(Layer):
    def compute(self, x: Any, y: Any) -> None:
        y[...] = x + np.float32(os.getpid() % 1000)


creator = LayerCreator(NumberOfProcess)
