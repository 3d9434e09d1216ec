"""R20: The default is listed among the tactics."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class ListsZero(Layer):
    def get_valid_tactics(self) -> Any:
        return [0, 1]


creator = LayerCreator(ListsZero)
