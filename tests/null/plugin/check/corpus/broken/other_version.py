"""R04: Creator and plugin have different versions."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class OtherVersion(Layer):
    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.plugin_version = "2"


creator = LayerCreator(OtherVersion)
