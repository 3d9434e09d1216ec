"""R19: True is returned for success."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class ReturnsTrue(Layer):
    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        super().enqueue(input_desc, output_desc, inputs, outputs, workspace, stream)
        return True


creator = LayerCreator(ReturnsTrue)
