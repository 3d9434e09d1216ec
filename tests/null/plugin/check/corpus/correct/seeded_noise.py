"""Makes noise with a generator of its own, seeded by a field."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dovetail.plugin.fields import PluginFieldType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class SeededNoise(Layer):
    FIELDS: ClassVar[dict[str, Any]] = {"seed": (PluginFieldType.INT32, 5)}
    seed: int

    def compute(self, x: Any, y: Any) -> None:
        y[...] = x + np.random.default_rng(self.seed).standard_normal(x.shape)


creator = LayerCreator(SeededNoise)
