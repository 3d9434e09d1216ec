"""Has a pool of threads of its own in each attached object."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class LastingThreads(Layer):
    pool: Any = None

    def attach_to_context(self, resource_context: Any) -> Any:
        twin = self.clone()
        twin.pool = ThreadPoolExecutor(1)
        return twin

    def clone(self) -> Any:
        twin = super().clone()
        twin.pool = None
        return twin

    def compute(self, x: Any, y: Any) -> None:
        self.pool.submit(np.tanh, x, out=y).result()

    def destroy(self) -> None:
        if self.pool is not None:
            self.pool.shutdown()
            self.pool = None


creator = LayerCreator(LastingThreads)
