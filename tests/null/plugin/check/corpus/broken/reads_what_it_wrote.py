"""R17: In place, the neighbour is read after it was overwritten."""

from __future__ import annotations

from typing import Any

from dovetail.plugin.interfaces import IPluginV3OneBuildV2
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class ReadsWhatItWrote(Layer, IPluginV3OneBuildV2):
    def get_aliased_input(self, output_index: int) -> int:
        return 0

    def compute(self, x: Any, y: Any) -> None:
        flat, out = x.reshape(-1), y.reshape(-1)
        for place in range(flat.size):
            out[place] = flat[place] + flat[place - 1] if place else flat[place]


creator = LayerCreator(ReadsWhatItWrote)
