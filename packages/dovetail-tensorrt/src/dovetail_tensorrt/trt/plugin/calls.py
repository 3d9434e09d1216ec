"""Calling plugins: ``op.namespace.name(tensors, attributes)``, and the layer that ``add_plugin`` makes of it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import dovetail
from dovetail.near_names import suggest
from dovetail_tensorrt.trt.plugin.creator import ensure_registered, make_plugin
from dovetail_tensorrt.trt.plugin.definitions import Definition, definitions
from dovetail_tensorrt.trt.plugin.errors import DecoratorError
from dovetail_tensorrt.trt.plugin.requests import QuickPluginCreationRequest

__all__ = ["PluginCall", "expand", "op"]


class PluginCall:
    """A plugin over tensors with its attributes, to be passed to ``add_plugin``."""

    def __init__(self, definition: Definition, tensors: Sequence[Any], attributes: Mapping[str, Any]) -> None:
        self.definition, self.tensors, self.attributes = definition, list(tensors), dict(attributes)

    def __call__(
        self, request: QuickPluginCreationRequest = QuickPluginCreationRequest.UNKNOWN
    ) -> tuple[list[Any], list[Any], Any]:
        """The inputs, no shape inputs, and the plugin."""
        return self.tensors, [], make_plugin(self.definition, self.attributes, QuickPluginCreationRequest(request))


class _Operator:
    def __init__(self, definition: Definition) -> None:
        self._definition = definition
        self.__doc__ = definition.signature.function.__doc__

    def __call__(self, *tensors: Any, **attributes: Any) -> PluginCall:
        definition = self._definition
        wanted = definition.signature.inputs
        for index, tensor in enumerate(tensors):
            if index < len(wanted) and not (hasattr(tensor, "dtype") and hasattr(tensor, "shape")):
                raise DecoratorError(
                    f"'{wanted[index]}' is no tensor of a network", where=definition.where, got=type(tensor).__name__
                )
        if len(tensors) != len(wanted):
            raise DecoratorError(
                "tensors are passed by position, and attributes by name",
                where=definition.where,
                expected=f"{len(wanted)} tensors: {', '.join(wanted)}",
                got=f"{len(tensors)} by position",
            )
        values = definition.check_attributes(attributes)
        ensure_registered(definition)
        return PluginCall(definition, tensors, values)

    def __repr__(self) -> str:
        return f"<op {self._definition.id}>"


class _Namespace:
    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def __getattr__(self, name: str) -> _Operator:
        found = definitions.find(self._namespace, name)
        if found is None:
            raise AttributeError(_explain(f"{self._namespace}::{name}", name, definitions.names(self._namespace)))
        return _Operator(found)

    def __dir__(self) -> list[str]:
        return list(definitions.names(self._namespace))


class _Operators:
    """All plugins by namespace and name."""

    def __getattr__(self, namespace: str) -> _Namespace:
        known = definitions.namespaces()
        if namespace not in known:
            raise AttributeError(_explain(f"{namespace}::...", namespace, known))
        return _Namespace(namespace)

    def __dir__(self) -> list[str]:
        return list(definitions.namespaces())


def _explain(asked: str, name: str, known: Sequence[str]) -> str:
    hint = suggest(name, known) or f"there is {', '.join(known) or 'none'}"
    return f"no plugin '{asked}' is registered; {hint}"


op: Final = _Operators()


def expand(network: Any, func: Any, aot: bool | None = None) -> Any:
    """Add the layer of a call, of a function that gives (inputs, shape inputs, plugin), or of such a tuple."""
    given = func
    if isinstance(func, PluginCall):
        given = func(_find_request(network, aot))
    elif callable(func):
        given = func()
    if not isinstance(given, tuple | list) or len(given) != 3:
        raise DecoratorError(
            "what was passed gives no plugin",
            where="add_plugin",
            expected="op.namespace.name(...), or (inputs, shape_inputs, plugin)",
            got=type(given).__name__,
        )
    return network.add_plugin_v3(*given)


def _find_request(network: Any, aot: bool | None) -> QuickPluginCreationRequest:
    """What the caller demands, else what the network prefers."""
    if aot is not None:
        return QuickPluginCreationRequest.strict(aot=bool(aot))
    flags = _flags_of(network)
    prefers_aot = bool(network.get_flag(flags.PREFER_AOT_PYTHON_PLUGINS))
    prefers_jit = bool(network.get_flag(flags.PREFER_JIT_PYTHON_PLUGINS))
    if prefers_aot and prefers_jit:
        raise DecoratorError("the network prefers both kinds of plugins", where="create_network", fix="set one flag")
    if prefers_aot:
        return QuickPluginCreationRequest.PREFER_AOT
    return QuickPluginCreationRequest.PREFER_JIT if prefers_jit else QuickPluginCreationRequest.UNKNOWN


def _flags_of(network: Any) -> Any:
    """The creation flags as a network numbers them: those of the module ``tensorrt`` have numbers of their own."""
    if type(network).__module__.startswith("dovetail_tensorrt.trt."):
        return importlib.import_module("dovetail_tensorrt.trt.enums").NetworkDefinitionCreationFlag
    return dovetail.NetworkDefinitionCreationFlag
