"""R23: The descriptors that were passed are flattened in place."""

from __future__ import annotations

from typing import Any

from dovetail.types import volume
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class EditsDescriptors(Layer):
    def on_shape_change(self, in_: Any, out: Any) -> Any:
        in_[0].dims = (volume(in_[0].dims),)


creator = LayerCreator(EditsDescriptors)
