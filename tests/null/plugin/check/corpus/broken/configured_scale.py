"""R38: What configure_plugin worked out is not stored."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class ConfiguredScale(Layer):
    scale = 0.0

    def configure_plugin(self, in_: Any, out: Any) -> Any:
        self.scale = 1.0 / len(in_[0].max)

    def compute(self, x: Any, y: Any) -> None:
        y[...] = x * np.float32(self.scale)


creator = LayerCreator(ConfiguredScale)
