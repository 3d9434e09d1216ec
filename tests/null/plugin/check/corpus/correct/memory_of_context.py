"""Takes memory from the context it is attached to."""

from __future__ import annotations

from typing import Any

from dovetail.plugin.arrays import as_array
from dovetail.types import volume
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class MemoryOfContext(Layer):
    allocator: Any = None
    address = 0

    def attach_to_context(self, resource_context: Any) -> Any:
        twin = self.clone()
        twin.allocator, twin.address = resource_context.gpu_allocator, 0
        return twin

    def clone(self) -> Any:
        twin = super().clone()
        twin.address = 0
        return twin

    def on_shape_change(self, in_: Any, out: Any) -> Any:
        self.destroy()
        self.address = self.allocator.allocate(max(4 * volume(in_[0].dims), 4), 64, 0)

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        room = as_array(self.address, input_desc[0])
        room[...] = as_array(inputs[0], input_desc[0])
        as_array(outputs[0], output_desc[0])[...] = room + 1

    def destroy(self) -> None:
        if self.address:
            self.allocator.deallocate(self.address)
            self.address = 0


creator = LayerCreator(MemoryOfContext)
