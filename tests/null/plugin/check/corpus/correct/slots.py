"""Has slots and no dictionary of its own."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dovetail.plugin.fields import PluginFieldType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class Kernel:
    __slots__ = ("scale",)

    def __init__(self, scale: float) -> None:
        self.scale = scale


class Slots(Layer):
    FIELDS: ClassVar[dict[str, Any]] = {"alpha": (PluginFieldType.FLOAT32, 1.0)}
    alpha: float

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.kernel = Kernel(self.alpha)

    def clone(self) -> Any:
        twin = super().clone()
        twin.kernel = Kernel(self.kernel.scale)
        return twin

    def compute(self, x: Any, y: Any) -> None:
        y[...] = x * np.float32(self.kernel.scale)


creator = LayerCreator(Slots)
