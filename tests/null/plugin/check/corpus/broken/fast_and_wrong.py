"""R50: The second tactic leaves something out."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dovetail.plugin.fields import PluginFieldType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class FastAndWrong(Layer):
    FIELDS: ClassVar[dict[str, Any]] = {"alpha": (PluginFieldType.FLOAT32, 1.0)}
    alpha: float

    def get_valid_tactics(self) -> Any:
        return [1, 2]

    def compute(self, x: Any, y: Any) -> None:
        y[...] = x * np.float32(self.alpha) if self.tactic != 2 else x


creator = LayerCreator(FastAndWrong)
