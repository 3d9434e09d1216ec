"""R13: A return is forgotten."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class AnswersNothing(Layer):
    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> Any:  # noqa: RET503
        if super().supports_format_combination(pos, in_out, num_inputs):
            return True  # otherwise nothing is returned


creator = LayerCreator(AnswersNothing)
