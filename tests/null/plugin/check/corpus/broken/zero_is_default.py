"""R25: a clone takes the default for a parameter of zero."""

from __future__ import annotations

from typing import Any, ClassVar

from dovetail.plugin.fields import PluginFieldType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class ZeroIsDefault(Layer):
    FIELDS: ClassVar[dict[str, tuple[PluginFieldType, Any]]] = {"bias": (PluginFieldType.FLOAT32, 1.0)}
    bias: float

    def clone(self) -> Any:
        twin = super().clone()
        twin.bias = self.bias or 1.0
        return twin

    def compute(self, *arrays: Any) -> None:
        arrays[1][...] = arrays[0] + self.bias


creator = LayerCreator(ZeroIsDefault)
