"""R20: Each question gets other tactics."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class TacticsChange(Layer):
    asked = 0

    def get_valid_tactics(self) -> Any:
        self.asked += 1
        return [1, 1 + self.asked]


creator = LayerCreator(TacticsChange)
