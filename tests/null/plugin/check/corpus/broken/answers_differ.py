"""R11: Every third question is answered with no."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class AnswersDiffer(Layer):
    asked = 0

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> Any:
        self.asked += 1
        return self.asked % 3 != 0 and super().supports_format_combination(pos, in_out, num_inputs)


creator = LayerCreator(AnswersDiffer)
