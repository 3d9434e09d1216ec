"""Plugin layers: a custom layer of the user's, of which the network keeps a clone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import onnx_ir as ir

from dovetail.errors import PluginError, UnsupportedOpError, UsageError
from dovetail.loggers import ErrorCode
from dovetail.network.api.core import NetworkCore
from dovetail.network.api.enums import LayerType
from dovetail.network.api.layers.base import ILayer
from dovetail.network.plugins import PluginEntry, make_plugin_node
from dovetail.plugin.adapters import is_adaptable_plugin, resolve_plugin
from dovetail.plugin.handle import PluginHandle
from dovetail.plugin.interfaces import InterfaceInfo
from dovetail.types import DataType, TensorRTPhase

if TYPE_CHECKING:
    from dovetail.network.api.emission import Emitter
    from dovetail.network.api.tensor import ITensor
    from dovetail.plugin.interfaces import IPluginV3

__all__ = ["IPluginV2Layer", "IPluginV3Layer", "PluginLayers"]

L = TypeVar("L", bound="IPluginV3Layer")


class IPluginV3Layer(ILayer):
    """A custom layer; inputs are the device inputs, then the shape inputs."""

    __slots__ = ("_entry", "_index", "_is_quick", "_shape_inputs")

    _layer_type = LayerType.PLUGIN_V3

    def __init__(self, network: NetworkCore, tensors: Sequence[ITensor], entry: PluginEntry, index: int) -> None:
        info = getattr(entry.handle.core, "interface_info", None)
        self._is_quick = isinstance(info, InterfaceInfo) and "V3QUICK" in info.kind
        super().__init__(network, tensors, num_outputs=entry.handle.num_outputs)
        self._entry = entry
        self._index = index
        self._shape_inputs = frozenset(range(entry.num_inputs, len(tensors)))

    @property
    def _kind(self) -> str:  # type: ignore[override]  # the default name has it
        return "PluginV3_V3QUICK" if self._is_quick else "PluginV3_V3ONE"

    @property
    def plugin(self) -> IPluginV3:
        """The network's own clone of the plugin."""
        plugin: IPluginV3 = self._entry.handle.plugin
        return plugin

    @property
    def num_shape_inputs(self) -> int:
        """How many of the inputs are shape inputs, at the end."""
        return self._entry.num_shape_inputs

    @property
    def _max_inputs(self) -> int:
        return len(self._inputs)

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        inputs = [e.input(index) for index in range(len(self._inputs))]
        return e.add_node(make_plugin_node(self._entry, self._index, inputs, name=self.name))


class IPluginV2Layer(IPluginV3Layer):
    """A custom layer of an older interface, run by the adapter that it brings."""

    __slots__ = ()

    _layer_type = LayerType.PLUGIN_V2
    _kind = "PluginV2"

    @property
    def plugin(self) -> Any:
        """The network's own clone of the plugin, in its own interface."""
        return self._entry.handle.plugin.adapted


def _rank_of(tensor: ITensor) -> int | None:
    """How many dimensions a tensor has; None where that is not known."""
    try:
        return len(tensor.shape)
    except ValueError:
        return None


class PluginLayers(NetworkCore):
    """The methods that add plugins."""

    __slots__ = ()

    def add_plugin_v3(
        self, inputs: Sequence[ITensor], shape_inputs: Sequence[ITensor], plugin: IPluginV3
    ) -> IPluginV3Layer:
        """Add a custom layer. The network keeps a clone; the object that was passed is not used afterwards.

        Args:
            inputs: What the layer computes with.
            shape_inputs: Integer tensors whose values ``get_output_shapes`` sees; they never reach ``enqueue``.
            plugin: The custom layer, with core, build and runtime capabilities.
        """
        return self._add_plugin("add_plugin_v3", inputs, shape_inputs, plugin, IPluginV3Layer)

    def _add_plugin(
        self,
        where: str,
        inputs: Sequence[ITensor],
        shape_inputs: Sequence[ITensor],
        plugin: Any,
        layer_class: type[L],
    ) -> L:
        tensors = self._check_tensors(inputs, where=where, argument="inputs")
        shapes = self._check_tensors(shape_inputs, where=where, argument="shape_inputs")
        for index, tensor in enumerate(shapes):
            if tensor.dtype not in (DataType.INT32, DataType.INT64):
                raise UsageError(
                    f"'shape_inputs[{index}]' is no integer tensor",
                    where=where,
                    expected="INT32 or INT64",
                    got=f"{tensor.dtype.name} '{tensor.name}'",
                    fix="add_cast it, or pass it in inputs",
                )
        try:
            entry = self._clone_plugin(tensors, shapes, plugin)
        except PluginError as error:
            if self.error_recorder is not None:
                self.error_recorder.report_error(ErrorCode.INVALID_ARGUMENT, str(error).splitlines()[0])
            raise
        self.plugins.append(entry)
        return self._add_layer(layer_class(self, [*tensors, *shapes], entry, len(self.plugins) - 1))

    def _clone_plugin(self, tensors: list[ITensor], shapes: list[ITensor], plugin: Any) -> PluginEntry:
        # This is the order in which the contract's engines call the user's object; afterwards it is the user's again.
        theirs = PluginHandle(plugin, phase=TensorRTPhase.BUILD, owned=False)
        if theirs.num_outputs < 1:
            raise PluginError("a plugin needs an output", where=theirs.where)
        ranks = [_rank_of(tensor) for tensor in tensors] if theirs.takes_ranks else []
        theirs.get_output_data_types([tensor.dtype for tensor in tensors], ranks)
        ours = theirs.clone()
        if not ours.name:
            raise PluginError("plugin_name is empty", where=ours.where, fix="set self.plugin_name")
        return PluginEntry(handle=ours, num_inputs=len(tensors), num_shape_inputs=len(shapes))

    def add_plugin(self, func: tuple[Any, ...] | Callable[[], Any], aot: bool | None = None) -> IPluginV3Layer:
        """Add a custom layer given as (inputs, shape inputs, plugin), or as a function that returns that."""
        if aot:
            raise UnsupportedOpError(
                "only plugins written with decorators are compiled ahead of time",
                where="add_plugin",
                fix="use the tensorrt-shaped module for them, or leave aot out",
            )
        given: Any = func() if callable(func) else func
        if not isinstance(given, tuple | list) or len(given) != 3:
            raise UsageError(
                "'func' does not give a plugin",
                where="add_plugin",
                expected="(inputs, shape_inputs, plugin)",
                got=type(given).__name__,
            )
        return self.add_plugin_v3(*given)

    def add_plugin_v2(self, inputs: Sequence[ITensor], plugin: Any) -> IPluginV2Layer:
        """Add a custom layer of an older interface, which brings an adapter; the network keeps a clone."""
        where = "add_plugin_v2"
        if not is_adaptable_plugin(plugin):
            self._check_tensors(inputs, where=where, argument="inputs")
            raise UnsupportedOpError(
                "V2 plugins are not part of this API",
                where=where,
                got=type(plugin).__name__,
                fix="use the tensorrt-shaped module, which adapts V2 plugins, or derive the plugin from IPluginV3",
            )
        return self._add_plugin(where, inputs, [], resolve_plugin(plugin), IPluginV2Layer)
