"""R03: The version is a number."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class VersionAsNumber(Layer):
    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.plugin_version: Any = 1


creator = LayerCreator(VersionAsNumber)
