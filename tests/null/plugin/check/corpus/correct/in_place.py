"""The output is the input, changed in place."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.plugin.interfaces import IPluginV3OneBuildV2
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class InPlace(Layer, IPluginV3OneBuildV2):
    def get_aliased_input(self, output_index: int) -> int:
        return 0

    def compute(self, x: Any, y: Any) -> None:
        np.add(x, 1, out=y)


creator = LayerCreator(InPlace)
