"""R29: attach_to_context gives the object itself."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class AttachesItself(Layer):
    def attach_to_context(self, resource_context: Any) -> Any:
        return self


creator = LayerCreator(AttachesItself)
