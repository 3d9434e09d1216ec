"""R12: The type of the output is asked for before it is proposed."""

from __future__ import annotations

from typing import Any

from dovetail.types import DataType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class ReadsLaterPosition(Layer):
    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> Any:
        return in_out[-1].desc.type in (None, DataType.FLOAT) and super().supports_format_combination(
            pos, in_out, num_inputs
        )


creator = LayerCreator(ReadsLaterPosition)
