"""R47: a table of its own overflows with the hundredth run."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class WrongAfterAHundred(Layer):
    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self._runs = np.int8(27)

    def compute(self, *arrays: Any) -> None:
        with np.errstate(over="ignore"):
            self._runs = np.int8(self._runs + np.int8(1))
        arrays[1][...] = arrays[0] if self._runs > 0 else 0


creator = LayerCreator(WrongAfterAHundred)
