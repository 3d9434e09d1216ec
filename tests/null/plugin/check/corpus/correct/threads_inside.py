"""Divides the work among threads and waits for them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class ThreadsInside(Layer):
    def compute(self, x: Any, y: Any) -> None:
        with ThreadPoolExecutor(2) as pool:
            for row in range(len(x)):
                pool.submit(np.multiply, x[row], 2, out=y[row] if y.ndim > 1 else y[row : row + 1])


creator = LayerCreator(ThreadsInside)
