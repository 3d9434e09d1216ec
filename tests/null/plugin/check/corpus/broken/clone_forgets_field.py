"""R25: One of two parameters is not copied."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dovetail.plugin.fields import PluginFieldType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class CloneForgetsField(Layer):
    FIELDS: ClassVar[dict[str, Any]] = {
        "alpha": (PluginFieldType.FLOAT32, 1.0),
        "beta": (PluginFieldType.FLOAT32, 0.0),
    }
    alpha: float
    beta: float

    def clone(self) -> Any:
        twin = CloneForgetsField(alpha=self.alpha)
        twin.tactic = self.tactic
        return twin

    def compute(self, x: Any, y: Any) -> None:
        y[...] = x * np.float32(self.alpha) + np.float32(self.beta)


creator = LayerCreator(CloneForgetsField)
