"""R11: The last question is kept in the object."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class RemembersQuestion(Layer):
    seen: Any = None

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> Any:
        self.seen = in_out[pos].desc.format
        return super().supports_format_combination(pos, in_out, num_inputs)


creator = LayerCreator(RemembersQuestion)
