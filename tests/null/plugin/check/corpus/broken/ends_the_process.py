"""R61: The process is ended when something is not to its liking."""

from __future__ import annotations

import os
from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class EndsTheProcess(Layer):
    def compute(self, x: Any, y: Any) -> None:
        if x.shape[-1] % 2:
            os._exit(3)
        y[...] = x


creator = LayerCreator(EndsTheProcess)
