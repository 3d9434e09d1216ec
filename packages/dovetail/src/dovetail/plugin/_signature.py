"""What the signature of a quick layer's function says: its inputs, its attributes, its tactic and its outputs."""

from __future__ import annotations

import hashlib
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dovetail.errors import UsageError
from dovetail.near_names import suggest
from dovetail.plugin._user_code import signature_of
from dovetail.plugin.attributes import REQUIRED, Attribute, read_attribute
from dovetail.plugin.fields import PluginField, PluginFieldType

__all__ = ["LayerSignature", "read_signature"]

_KINDS: Final = inspect.Parameter
_OUT: Final = "out"
_TACTIC: Final = "tactic"
_FIELD_TYPES: Final = {
    "int": PluginFieldType.INT64,
    "float": PluginFieldType.FLOAT64,
    "bool": PluginFieldType.INT8,
    "str": PluginFieldType.CHAR,
    "bytes": PluginFieldType.UNKNOWN,
    "ints": PluginFieldType.INT64,
    "floats": PluginFieldType.FLOAT64,
    "array": PluginFieldType.UNKNOWN,
}


@dataclass(frozen=True, kw_only=True)
class LayerSignature:
    """A layer function, read once."""

    inputs: tuple[str, ...]
    takes_any_inputs: bool
    attributes: tuple[Attribute, ...]
    takes_out: bool
    has_default_tactic: bool
    place: str
    identity: tuple[str, str]
    digest: str

    def takes_inputs(self, count: int) -> bool:
        """Whether the function can be called with so many inputs."""
        return count >= len(self.inputs) if self.takes_any_inputs else count == len(self.inputs)

    def fill(self, values: Mapping[str, Any], where: str) -> dict[str, Any]:
        """All attributes: what was given, converted, and defaults for the rest."""
        known = {attribute.name for attribute in self.attributes}
        for name in values:
            if name not in known:
                raise UsageError(
                    f"there is no attribute '{name}'",
                    where=where,
                    expected=", ".join(attribute.name for attribute in self.attributes) or "no attributes",
                    fix=suggest(name, known),
                )
        return {attribute.name: _value_of(attribute, values, where) for attribute in self.attributes}

    def select(self, function: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes that another function of the layer asks for by keyword."""
        parameters = signature_of(function).parameters.values()
        if any(parameter.kind is _KINDS.VAR_KEYWORD for parameter in parameters):
            return dict(values)
        return {p.name: values[p.name] for p in parameters if p.kind is _KINDS.KEYWORD_ONLY and p.name in values}

    def has_default(self, name: str) -> bool:
        """Whether there is an attribute of this name that a node may leave out."""
        return any(one.name == name and one.default is not REQUIRED for one in self.attributes)

    def field_names(self) -> list[PluginField]:
        """A field without data for each attribute, as a creator lists them."""
        return [PluginField(attribute.name, None, _FIELD_TYPES[attribute.kind]) for attribute in self.attributes]


def _value_of(attribute: Attribute, values: Mapping[str, Any], where: str) -> Any:
    if attribute.name in values:
        return attribute.convert(values[attribute.name])
    if attribute.default is REQUIRED:
        raise UsageError(
            f"attribute '{attribute.name}' has no value", where=where, fix="pass it, or give the parameter a default"
        )
    return attribute.default


def read_signature(function: Callable[..., Any], tactics: Sequence[str]) -> LayerSignature:
    """Read a layer function, and refuse what a layer cannot be made of."""
    place = _place_of(function)
    parameters = list(signature_of(function).parameters.values())
    for parameter in parameters:
        _refuse_odd(parameter, place)
    _check_tactics(parameters, tactics, place)
    annotations = _annotations_of(function)
    return LayerSignature(
        inputs=tuple(p.name for p in parameters if p.kind in (_KINDS.POSITIONAL_ONLY, _KINDS.POSITIONAL_OR_KEYWORD)),
        takes_any_inputs=any(p.kind is _KINDS.VAR_POSITIONAL for p in parameters),
        attributes=tuple(
            read_attribute(p, annotations.get(p.name, REQUIRED), place)
            for p in parameters
            if p.kind is _KINDS.KEYWORD_ONLY and p.name not in (_OUT, _TACTIC)
        ),
        takes_out=any(p.name == _OUT for p in parameters),
        has_default_tactic=any(p.name == _TACTIC and p.default is not REQUIRED for p in parameters),
        place=place,
        identity=(function.__module__, function.__qualname__),
        digest=_digest_of(function),
    )


def _place_of(function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None)
    if code is None:
        raise UsageError("a layer is made of a Python function", got=type(function).__name__, fix="wrap it in a def")
    return f"{code.co_filename}:{code.co_firstlineno}"


def _refuse_odd(parameter: inspect.Parameter, place: str) -> None:
    if parameter.kind is _KINDS.VAR_KEYWORD:
        raise UsageError(f"'**{parameter.name}' hides the attributes", where=place, fix="name each attribute after *")
    is_input = parameter.kind in (_KINDS.POSITIONAL_ONLY, _KINDS.POSITIONAL_OR_KEYWORD)
    if is_input and (parameter.default is not REQUIRED or parameter.name in (_OUT, _TACTIC)):
        raise UsageError(
            f"parameter '{parameter.name}' stands among the inputs",
            where=place,
            fix=f"put a * before it: def layer(x, *, {parameter.name}=...)",
        )


def _check_tactics(parameters: Sequence[inspect.Parameter], tactics: Sequence[str], place: str) -> None:
    parameter = next((p for p in parameters if p.name == _TACTIC), None)
    if isinstance(tactics, str) or len(set(tactics)) != len(tactics):
        raise UsageError("tactics must be different names", where=place, got=tactics, fix='tactics=("a", "b")')
    if tactics and parameter is None:
        raise UsageError("the layer has tactics, but its function takes none", where=place, fix="add *, tactic")
    if parameter is not None and not tactics:
        raise UsageError("the function takes a tactic, but the layer has none", where=place, fix='tactics=("a", "b")')
    if parameter is not None and parameter.default is not REQUIRED and parameter.default not in tactics:
        raise UsageError("the default tactic is not one of the tactics", where=place, got=repr(parameter.default))


def _annotations_of(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except NameError:
        # Some annotation names what only a type checker imports; then the defaults tell the kinds.
        return {}


def _digest_of(function: Callable[..., Any]) -> str:
    """Changes when the function is edited, so that timings of the old one are not used for the new one."""
    try:
        text = inspect.getsource(function).encode()
    except (OSError, TypeError):
        text = function.__code__.co_code
    return hashlib.sha256(text).hexdigest()[:12]
