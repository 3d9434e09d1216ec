"""JIT plugins: the author's Python function runs in every ``enqueue``, on the host or on a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dovetail import IPluginResourceContext, IPluginV3OneRuntime, PluginFieldCollection, PluginTensorDesc
from dovetail_tensorrt.trt.plugin.base import DecoratedPlugin
from dovetail_tensorrt.trt.plugin.errors import DecoratorError
from dovetail_tensorrt.trt.plugin.signatures import Callback
from dovetail_tensorrt.trt.plugin.tensors import Tensor, make_tensor

__all__ = ["JitPlugin"]


class JitPlugin(DecoratedPlugin, IPluginV3OneRuntime):
    """A plugin that runs the function given to ``impl``, in each run."""

    can_capture = False

    def attach_to_context(self, resource_context: IPluginResourceContext) -> JitPlugin:
        """A clone: the function uses nothing of the context."""
        twin: JitPlugin = self.clone()
        return twin

    def on_shape_change(self, in_: Sequence[PluginTensorDesc], out: Sequence[PluginTensorDesc]) -> None:
        """Shapes come with every run."""

    def enqueue(
        self,
        input_desc: Sequence[PluginTensorDesc],
        output_desc: Sequence[PluginTensorDesc],
        inputs: Sequence[int],
        outputs: Sequence[int],
        workspace: int,
        stream: int,
    ) -> None:
        """Run the author's function over tensors at these addresses."""
        callback = self._require_impl()
        given = [make_tensor(*pair, int(stream)) for pair in zip(inputs, input_desc, strict=True)]
        made = [
            make_tensor(address, desc, int(stream), aliased_to=_find_at(address, given))
            for address, desc in zip(outputs, output_desc, strict=True)
        ]
        values = self.definition.select(callback, self.attributes)
        last: tuple[Any, ...] = (self.tactic,) if callback.takes_tactic else ()
        callback.function(*given, *values, made, int(stream), *last)

    def _require_impl(self) -> Callback:
        if self.definition.impl is None:
            raise DecoratorError(
                "the plugin has no function to run",
                where=self.definition.where,
                fix=f'decorate one with @impl("{self.definition.id}")',
            )
        return self.definition.impl

    def get_fields_to_serialize(self) -> PluginFieldCollection:
        """The attributes that the function takes: a loaded plan needs no others."""
        types = self.definition.signature.attributes
        names = self._require_impl().attributes
        return PluginFieldCollection(types[name].to_field(name, self.attributes[name]) for name in names)


def _find_at(address: int, tensors: Sequence[Tensor]) -> Tensor | None:
    """The tensor that lies at an address, which outputs share only where they are aliased."""
    return next((each for each in tensors if address and each.data_ptr == address), None)
