"""R42 R44 R48: enqueue works on the shape that was tuned for."""

from __future__ import annotations

from typing import Any, ClassVar

from dovetail.plugin.arrays import as_array
from dovetail.plugin.fields import PluginFieldType
from dovetail.types import PluginTensorDesc, volume
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class OptShape(Layer):
    FIELDS: ClassVar[dict[str, Any]] = {"count": (PluginFieldType.INT64, 0)}
    count: int

    def configure_plugin(self, in_: Any, out: Any) -> Any:
        self.count = volume(in_[0].opt)

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        desc = PluginTensorDesc((self.count,))
        as_array(outputs[0], desc)[...] = as_array(inputs[0], desc) * 2


creator = LayerCreator(OptShape)
