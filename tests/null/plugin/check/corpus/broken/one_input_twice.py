"""R17: Two outputs are given the memory of one input."""

from __future__ import annotations

from typing import Any

from dovetail.plugin.interfaces import IPluginV3OneBuildV2
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class OneInputTwice(Layer, IPluginV3OneBuildV2):
    OUTPUTS = 2

    def get_aliased_input(self, output_index: int) -> int:
        return 0

    def compute(self, x: Any, y: Any, z: Any) -> None:
        y[...] = x
        z[...] = x


creator = LayerCreator(OneInputTwice)
