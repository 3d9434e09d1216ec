"""Creators as a registry sees them: who they are, whether they can be used, and which ones are near a wrong name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from dovetail.errors import DovetailError, PluginError
from dovetail.near_names import find_near
from dovetail.plugin._user_code import describe, signature_of
from dovetail.plugin.fields import MAX_NAME_BYTES, PluginField

__all__ = ["CreatorKey", "bind_creator", "explain_missing"]

_SHOWN: Final = 8
"""How many names a message lists before it says how many more there are."""


class CreatorKey(NamedTuple):
    """What a creator is found by.

    >>> str(CreatorKey("Pad", "1", ""))
    "'Pad' version '1'"
    """

    name: str
    version: str
    namespace: str

    def __str__(self) -> str:
        place = f" in namespace '{self.namespace}'" if self.namespace else ""
        return f"'{self.name}' version '{self.version}'{place}"


def bind_creator(creator: Any, namespace: str = "") -> CreatorKey:
    """Check a creator, give it its namespace, and say what it is found by.

    The namespace that is passed wins over the creator's own; without one the creator keeps its own, because that is
    what its plugins write into plans.
    """
    if isinstance(creator, type):
        raise PluginError(
            f"the class {creator.__name__} was registered instead of an instance", fix=f"pass {creator.__name__}()"
        )
    name, version = _string(creator, "name"), _string(creator, "plugin_version")
    if not name:
        raise PluginError("the creator's name is empty", where=describe(creator), fix="set self.name in __init__")
    _check_field_names(creator)
    _check_create_plugin(creator)
    return CreatorKey(name, version, _bind_namespace(creator, namespace))


def _string(creator: Any, attribute: str) -> str:
    value = _read(creator, attribute)
    if not isinstance(value, str) or len(value.encode()) > MAX_NAME_BYTES:
        raise PluginError(
            f"{attribute} is not a usable string",
            where=describe(creator),
            expected=f"str of at most {MAX_NAME_BYTES} bytes",
            got=repr(value)[:60],
        )
    return value


def _read(creator: Any, attribute: str) -> Any:
    try:
        return getattr(creator, attribute)
    except DovetailError:
        raise
    except Exception as error:
        raise PluginError(
            f"{attribute} cannot be read: {type(error).__name__}: {error}",
            where=describe(creator),
            fix=f"set self.{attribute} in __init__",
        ) from error


def _check_field_names(creator: Any) -> None:
    fields = _read(creator, "field_names")
    if isinstance(fields, str | bytes) or not isinstance(fields, Iterable):
        raise PluginError(
            "field_names is not a collection of fields",
            where=describe(creator),
            got=type(fields).__name__,
            fix="set self.field_names = PluginFieldCollection([...]), empty when there are no fields",
        )
    for field in fields:
        if not isinstance(field, PluginField):
            raise PluginError(
                "field_names holds something that is not a PluginField",
                where=describe(creator),
                got=repr(field)[:60],
                fix='wrap it: PluginField("name", data, PluginFieldType.FLOAT32)',
            )
        if not field.name or len(field.name.encode()) > MAX_NAME_BYTES:
            raise PluginError(
                "a field name is empty or too long",
                where=describe(creator),
                expected=f"1 to {MAX_NAME_BYTES} bytes",
                got=repr(field.name[:40]),
            )


def _check_create_plugin(creator: Any) -> None:
    create = _read(creator, "create_plugin")
    if not callable(create):
        raise PluginError(
            "create_plugin is not a method", where=describe(creator), fix="def create_plugin(self, name, fc, phase)"
        )
    try:
        signature_of(create).bind("name", [], 0)
    except TypeError:
        raise PluginError(
            "create_plugin has the wrong parameters",
            where=describe(creator),
            expected="create_plugin(name, field_collection, phase)",
            got=f"create_plugin({', '.join(signature_of(create).parameters)})",
        ) from None
    except ValueError:
        return  # a callable without a Python signature is taken at its word


def _bind_namespace(creator: Any, namespace: str) -> str:
    own = getattr(creator, "plugin_namespace", "")
    wanted = namespace or own or ""
    if not isinstance(wanted, str) or len(wanted.encode()) > MAX_NAME_BYTES:
        raise PluginError(
            "plugin_namespace is not a usable string",
            where=describe(creator),
            expected=f"str of at most {MAX_NAME_BYTES} bytes",
            got=repr(wanted)[:60],
        )
    if own != wanted:
        _set_namespace(creator, wanted)
    return wanted


def _set_namespace(creator: Any, namespace: str) -> None:
    try:
        creator.plugin_namespace = namespace
    except AttributeError as error:
        raise PluginError(
            f"the namespace '{namespace}' cannot be given to the creator: {error}",
            where=describe(creator),
            fix="make plugin_namespace a plain attribute",
        ) from error


def explain_missing(wanted: CreatorKey, known: Sequence[CreatorKey], *, hidden: bool = False) -> PluginError:
    """The error for a lookup that failed, with the near names and what to do about it.

    Args:
        wanted: What was asked for.
        known: Everything that the lookup could have found.
        hidden: Whether a parent has it but was not searched.
    """
    near, fix = _nearest(wanted, known)
    if hidden:
        fix = "the parent registry has it: set parent_search_enabled = True"
    return PluginError(
        f"no creator is registered for plugin {wanted}",
        where="plugin registry",
        expected=_listing("near names are", near) if near else _listing("registered are", known),
        fix=fix,
    )


def _listing(title: str, keys: Sequence[CreatorKey]) -> str:
    if not keys:
        return "a registered creator, but none is registered"
    more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    return f"a registered creator; {title} " + "; ".join(map(str, sorted(keys)[:_SHOWN])) + more


def _nearest(wanted: CreatorKey, known: Sequence[CreatorKey]) -> tuple[list[CreatorKey], str]:
    same_name = [key for key in known if key.name == wanted.name]
    other_place = [key for key in same_name if key.version == wanted.version]
    if other_place:
        return other_place, f"ask for namespace '{other_place[0].namespace}' (plugin_namespace in an ONNX node)"
    if same_name:
        versions = ", ".join(sorted({f"'{key.version}'" for key in same_name}))
        return same_name, f"ask for version {versions} (plugin_version in an ONNX node), or register the one you need"
    names = set(find_near(wanted.name, (key.name for key in known), count=_SHOWN))
    near = [key for key in known if key.name in names]
    if near:
        return near, "check the spelling, or register the creator"
    return [], "register the creator first: @dovetail.register_plugin on its class, or registry.load_library(path)"
