"""R65: The result depends on an environment variable."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class ReadsEnvironment(Layer):
    def compute(self, x: Any, y: Any) -> None:
        y[...] = x * np.float32(2 if os.environ.get("DOVETAIL_CORPUS_FAST") else 1)


creator = LayerCreator(ReadsEnvironment)
