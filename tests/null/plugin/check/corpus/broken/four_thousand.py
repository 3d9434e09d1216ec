"""R44: it stops after 4096 elements."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class FourThousand(Layer):
    def compute(self, *arrays: Any) -> None:
        x, y = arrays
        y.reshape(-1)[:4096] = x.reshape(-1)[:4096]


creator = LayerCreator(FourThousand)
