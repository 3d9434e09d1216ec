"""Networks: the layers are the engine's own; what adds one answers with None and a message when it cannot."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import dovetail
from dovetail_tensorrt.trt.answers import Reporter
from dovetail_tensorrt.trt.enums import NetworkDefinitionCreationFlag
from dovetail_tensorrt.trt.parts import import_part
from dovetail_tensorrt.trt.removed import RemovedNames

if TYPE_CHECKING:
    from dovetail_tensorrt.trt.building.builder import Builder

__all__ = ["INetworkDefinition"]

_NONE: Final = [
    *(name for name in dir(dovetail.Network) if name.startswith("add_") and name != "add_model"),
    *("get_input", "get_output", "get_layer", "mark_output", "unmark_output", "remove_tensor"),
]
_FALSE: Final = [
    "mark_debug",
    "mark_output_for_shapes",
    "mark_weights_refittable",
    "set_weights_name",
    "unmark_debug",
    "unmark_output_for_shapes",
    "unmark_weights_refittable",
]


def _answers_failures(cls: type[INetworkDefinition]) -> type[INetworkDefinition]:
    """Have methods of the engine's network tell their failures as the contract does."""
    for failure, names in ((None, _NONE), (False, _FALSE)):
        for name in names:
            setattr(cls, name, _wrap(name, getattr(cls, name), failure))
    return cls


def _wrap(name: str, method: Callable[..., Any], failure: object) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: INetworkDefinition, *arguments: Any, **keywords: Any) -> Any:
        return self.reporter.attempt(
            f"INetworkDefinition.{name}", lambda: method(self, *arguments, **keywords), failure
        )

    return call


@_answers_failures
class INetworkDefinition(RemovedNames, dovetail.Network):
    """A network under construction; made by ``Builder.create_network``."""

    __slots__ = ("_builder", "_flags", "_name", "_recorder", "reporter", "watches_unfused")

    def __init__(self, builder: Builder, flags: int, reporter: Reporter) -> None:
        is_strong = bool(int(flags) >> NetworkDefinitionCreationFlag.STRONGLY_TYPED & 1)
        registry = builder.get_plugin_registry().registry
        super().__init__(strongly_typed=is_strong, registry=registry, has_contract_io=True)
        self.reporter = reporter
        """Who is told of what fails."""
        self._builder = builder
        self._flags = int(flags)
        self.watches_unfused = False
        """Whether tensors that are still there after fusion can be watched."""

    def __del__(self) -> None:
        """Nothing: the contract has the name."""

    @property
    def builder(self) -> Builder:
        """The builder that made it."""
        return self._builder

    @builder.setter
    def builder(self, value: Any) -> None:
        """Taken for the base class, which begins without one."""

    @property
    def name(self) -> str:
        """The name of the network, which the engine takes."""
        return self._name

    @name.setter
    def name(self, value: str) -> None:
        self._name = str(value)

    @property
    def error_recorder(self) -> Any:
        """Where errors are recorded too."""
        return self._recorder

    @error_recorder.setter
    def error_recorder(self, recorder: Any) -> None:
        self._recorder = recorder
        if hasattr(self, "reporter"):
            self.reporter.recorder = recorder

    @property
    def flags(self) -> int:
        """Creation flags as a mask of ``1 << flag``; without STRONGLY_TYPED a build may choose types."""
        return self._flags

    def get_flag(self, flag: Any) -> bool:
        """Whether the network has a creation flag."""
        return bool(self.flags >> NetworkDefinitionCreationFlag(flag) & 1)

    def mark_unfused_tensors_as_debug_tensors(self) -> bool:
        """Have every tensor that is still there after fusion be a debug tensor; the build is done twice for it."""
        self.watches_unfused = True
        return True

    def unmark_unfused_tensors_as_debug_tensors(self) -> bool:
        """Undo ``mark_unfused_tensors_as_debug_tensors``."""
        self.watches_unfused = False
        return True

    def add_plugin(self, func: Any, aot: bool | None = None) -> Any:
        """Add a plugin: what ``tensorrt.plugin.op`` gave, or a tuple of inputs, shape inputs and a plugin."""
        if isinstance(func, tuple | list) and len(func) == 3 and isinstance(func[2], dovetail.IPluginV3):
            return self.add_plugin_v3(*func)
        return import_part("plugin").expand(self, func, aot)

    def add_plugin_v2(self, inputs: Any, plugin: Any) -> Any:
        """Add a V2 plugin, or a built-in one: those are V2 in version 10, and its scripts add them so."""
        from dovetail_tensorrt.builtin.base import BuiltinPlugin

        if isinstance(plugin, BuiltinPlugin):
            return self.add_plugin_v3(inputs, [], plugin)
        return super().add_plugin_v2(inputs, plugin)

    def serialize(self) -> dovetail.IHostMemory | None:
        """The network as an ONNX model, plugins as their nodes; None when it is incomplete."""
        return self.reporter.attempt("INetworkDefinition.serialize", self._write_model, None)

    def _write_model(self) -> dovetail.IHostMemory:
        import onnx_ir as ir

        return dovetail.IHostMemory(ir.to_proto(self.to_model()).SerializeToString())
