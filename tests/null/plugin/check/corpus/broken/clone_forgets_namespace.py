"""R25: The namespace is set by the creator alone and lost in clones."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class CloneForgetsNamespace(Layer):
    def clone(self) -> Any:
        return CloneForgetsNamespace()


class InNamespace(LayerCreator):
    def __init__(self) -> None:
        super().__init__(CloneForgetsNamespace)
        self.plugin_namespace = "vision"

    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
        plugin = super().create_plugin(name, field_collection, phase)
        plugin.plugin_namespace = "vision"
        return plugin


creator = InNamespace()
