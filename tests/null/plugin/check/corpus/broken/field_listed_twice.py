"""R05: A field is listed twice."""

from __future__ import annotations

from typing import Any, ClassVar

from dovetail.plugin.fields import PluginFieldCollection, PluginFieldType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class FieldListedTwice(Layer):
    FIELDS: ClassVar[dict[str, Any]] = {"alpha": (PluginFieldType.FLOAT32, 1.0)}
    alpha: float


class ListsTwice(LayerCreator):
    def __init__(self) -> None:
        super().__init__(FieldListedTwice)
        self.field_names = PluginFieldCollection([*self.field_names, *self.field_names])


creator = ListsTwice()
