"""R32: The context is kept in the object that is attached, not in the new one."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class ContextInOriginal(Layer):
    context: Any = None

    def attach_to_context(self, resource_context: Any) -> Any:
        self.context = resource_context
        return self.clone()


creator = LayerCreator(ContextInOriginal)
