"""R06: The number of outputs changes when it is configured."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class OutputsGrow(Layer):
    def configure_plugin(self, in_: Any, out: Any) -> Any:
        self.num_outputs = 2


creator = LayerCreator(OutputsGrow)
