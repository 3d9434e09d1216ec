"""The creator of a plugin written with decorators: for ONNX nodes while a network is made, and for loaded plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from dovetail import (
    InterfaceInfo,
    IPluginCreatorV3One,
    PluginField,
    PluginFieldCollection,
    PluginFieldType,
    TensorRTPhase,
    get_plugin_registry,
)
from dovetail.plugin.registry import register_statically
from dovetail_tensorrt.trt.plugin.aot import AotPlugin
from dovetail_tensorrt.trt.plugin.base import VERSION, DecoratedPlugin
from dovetail_tensorrt.trt.plugin.definitions import Definition
from dovetail_tensorrt.trt.plugin.errors import DecoratorError
from dovetail_tensorrt.trt.plugin.jit import JitPlugin
from dovetail_tensorrt.trt.plugin.requests import QuickPluginCreationRequest

__all__ = ["DecoratedCreator", "ensure_registered", "make_plugin"]

_AOT: Final = "aot"


def make_plugin(
    definition: Definition, attributes: Mapping[str, Any], request: QuickPluginCreationRequest
) -> DecoratedPlugin:
    """A JIT or an ahead-of-time plugin, as the request and what was defined decide."""
    has_jit, has_aot = definition.impl is not None, definition.aot_impl is not None
    if not has_jit and not has_aot:
        raise DecoratorError(
            "the plugin can be described and not run", where=definition.where, fix="add an @impl or an @aot_impl"
        )
    if request is QuickPluginCreationRequest.STRICT_AOT and not has_aot:
        raise DecoratorError("aot=True, and there is no @aot_impl", where=definition.where, fix="add one")
    if request is QuickPluginCreationRequest.STRICT_JIT and not has_jit:
        raise DecoratorError("aot=False, and there is no @impl", where=definition.where, fix="add one")
    if has_jit and has_aot and request is QuickPluginCreationRequest.UNKNOWN:
        raise DecoratorError(
            "the plugin has an @impl and an @aot_impl, and nothing says which is meant",
            where=definition.where,
            fix="pass aot=True or aot=False to add_plugin, or create the network with "
            "PREFER_AOT_PYTHON_PLUGINS or PREFER_JIT_PYTHON_PLUGINS",
        )
    is_aot = has_aot and (not has_jit or request.wants_aot)
    return AotPlugin(definition, attributes) if is_aot else JitPlugin(definition, attributes)


class DecoratedCreator(IPluginCreatorV3One):
    """Makes the plugins of one definition."""

    interface_info: ClassVar[InterfaceInfo] = InterfaceInfo("PLUGIN CREATOR_V3QUICK", 1, 0)

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        self.definition = definition
        self.name, self.plugin_namespace, self.plugin_version = definition.name, definition.namespace, VERSION
        fields = [PluginField(name, None, kind.field_type) for name, kind in definition.signature.attributes.items()]
        if _AOT not in definition.signature.attributes:
            fields.append(PluginField(_AOT, None, PluginFieldType.INT32))
            self.optional_fields = (_AOT,)
        self.field_names = PluginFieldCollection(fields)
        self.__wrapped__ = definition.signature.function  # so that messages name the file of the function

    def create_plugin(self, name: str, *arguments: Any) -> Any:
        """A plugin from fields: ``(name, fields, phase)``, or ``(name, namespace, fields, phase[, request])``."""
        if arguments and isinstance(arguments[0], str):
            arguments = arguments[1:]
        fields, phase, *rest = arguments
        request = QuickPluginCreationRequest(rest[0]) if rest else QuickPluginCreationRequest.UNKNOWN
        by_name = {field.name: field for field in fields}
        flag = by_name.pop(_AOT, None) if _AOT not in self.definition.signature.attributes else None
        if flag is not None and flag.data is not None:
            request = QuickPluginCreationRequest.strict(aot=bool(flag.data[0]))
        if phase == TensorRTPhase.RUNTIME:
            return JitPlugin(self.definition, self._read(by_name, list(by_name)))
        return make_plugin(self.definition, self._read(by_name, list(self.definition.signature.attributes)), request)

    def _read(self, fields: Mapping[str, PluginField], names: list[str]) -> dict[str, Any]:
        types, where = self.definition.signature.attributes, self.definition.where
        for name in names:
            if name not in types or name not in fields:
                what = "has no value" if name in types else "is no attribute of the plugin"
                raise DecoratorError(f"'{name}' {what}", where=where, expected=", ".join(types) or "no attributes")
        return {name: types[name].from_field(fields[name], where) for name in names}


def ensure_registered(definition: Definition) -> None:
    """Register the creator once, in the global registry or with the library that is being imported."""
    if definition.creator is None:
        creator = DecoratedCreator(definition)
        known = get_plugin_registry().find_creator(creator.name, creator.plugin_version, creator.plugin_namespace)
        if isinstance(known, DecoratedCreator) and known.definition.is_replaced:
            get_plugin_registry().deregister_creator(known)
        register_statically(creator, definition.namespace)
        definition.creator = creator
