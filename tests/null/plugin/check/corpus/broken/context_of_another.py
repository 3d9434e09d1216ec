"""R33: The context of whoever came last is used."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class ContextOfAnother(Layer):
    context: Any = None

    def attach_to_context(self, resource_context: Any) -> Any:
        ContextOfAnother.context = resource_context
        return self.clone()

    def on_shape_change(self, in_: Any, out: Any) -> Any:
        allocator = self.context.gpu_allocator
        allocator.deallocate(allocator.allocate(256, 256, 0))


creator = LayerCreator(ContextOfAnother)
