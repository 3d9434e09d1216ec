"""Rules about creation and identity: R01 to R05."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from dovetail.plugin.check.cases.field_values import copy_fields
from dovetail.plugin.check.driver import CheckedPlugin
from dovetail.plugin.check.host.calls import CallbackRaised, read, read_or
from dovetail.plugin.check.plugin_object import NotAPlugin, Specimen
from dovetail.plugin.check.rules.catalogue import rule
from dovetail.plugin.check.traits import Traits, first_difference, traits_of
from dovetail.plugin.fields import MAX_NAME_BYTES, PluginField, PluginFieldCollection, PluginFieldType
from dovetail.rules import Blocked, Broken, NotApplicable
from dovetail.types import TensorRTPhase

__all__: list[str] = []


@rule(
    "R01",
    "create_plugin makes a new plugin object",
    slug="create-plugin",
    why="The caller owns the object; a creator that raises or returns another leaves the network without its layer.",
    fix="return a new IPluginV3 object; give the required fields with --fields name=value",
)
def judge_creation(subject: CheckedPlugin) -> None:
    """Create twice; capabilities are judged by R02."""
    with suppress(Blocked):
        _ = subject.origin
    try:
        plugins = [_create(subject).plugin for _ in range(2)]
    except NotAPlugin:
        raise
    except CallbackRaised as raised:
        if raised.method == "create_plugin":
            raise
    except Broken:
        return
    else:
        if plugins[0] is plugins[1]:
            raise Broken("create_plugin returned the same object twice, expected a new one each time")


@rule(
    "R02",
    "A build-phase object has complete core, build and runtime capabilities",
    slug="capabilities",
    why="The builder asks the object for each capability at any time and calls every required method of it.",
    fix="return the object that implements the capability, the same one each time, with all required methods",
)
def judge_capabilities(subject: CheckedPlugin) -> None:
    """Ask a new object for its capabilities, each twice."""
    with suppress(Blocked):
        _ = subject.origin
    try:
        _create(subject)
    except NotAPlugin:
        raise Blocked("create_plugin gives no plugin, see R01") from None
    except CallbackRaised as raised:
        if raised.method == "create_plugin":
            raise Blocked("create_plugin raised, see R01") from None
        raise


def _create(subject: CheckedPlugin) -> Specimen:
    return subject.create(TensorRTPhase.BUILD, copy_fields(subject.fields))


@rule(
    "R03",
    "plugin_name, plugin_version and plugin_namespace are set",
    slug="identity",
    why="A plan stores the three and finds the creator by them when it is loaded.",
    fix="set all three in __init__ to str, the name not empty, each of at most 1023 bytes",
)
def judge_identity(subject: CheckedPlugin) -> None:
    """Read the three attributes of a new object."""
    core = subject.make().core
    for attribute in ("plugin_name", "plugin_version", "plugin_namespace"):
        _require_name(attribute, read(core, attribute), may_be_empty=attribute != "plugin_name")


@rule(
    "R04",
    "The creator and its plugin have the same name, version and namespace",
    slug="names-agree",
    why="A plan is written with the names of the plugin and looked up among the names of the creators.",
    fix="use the same constants in the plugin and in its creator",
)
def judge_agreement(subject: CheckedPlugin) -> None:
    """Compare the names of the creator with those of a new object."""
    subject.require_creator()
    core = subject.make().core
    for attribute in ("name", "plugin_version", "plugin_namespace"):
        of_creator = read(subject.creator, attribute)
        other = "plugin_name" if attribute == "name" else attribute
        of_plugin = read_or(core, other, None)
        if not isinstance(of_plugin, str):
            raise Blocked(f"{other} is not set, see R03")
        if not isinstance(of_creator, str) or of_creator != of_plugin:
            raise Broken(f"creator.{attribute} is {of_creator!r}, plugin.{other} is {of_plugin!r}")


@rule(
    "R05",
    "field_names lists the fields of the creator, each name once",
    slug="field-names",
    why="The ONNX importer passes only attributes that are listed, read as the listed type.",
    fix="set field_names to PluginFieldCollection([PluginField(name, None, type), ...]) with unique names",
)
def judge_field_names(subject: CheckedPlugin) -> str:
    """Read the declaration of the creator."""
    subject.require_creator()
    names = read(subject.creator, "field_names")
    if not isinstance(names, list | tuple):
        raise Broken(f"field_names is {names!r}, expected a PluginFieldCollection")
    seen: set[str] = set()
    for index, item in enumerate(names):
        if not isinstance(item, PluginField) or not isinstance(item.type, PluginFieldType):
            raise Broken(f"field_names[{index}] is {item!r}, expected a PluginField")
        _require_name(f"field_names[{index}].name", item.name, may_be_empty=False)
        if item.name in seen:
            raise Broken(f"field_names[{index}].name is {item.name!r}, which is listed before")
        seen.add(item.name)
    unset = [name for name in seen if subject.fields.find(name) is None]
    return f"left at their defaults: {', '.join(sorted(unset))}" if unset else ""


@rule(
    "R67",
    "create_plugin finds fields by their names, in any order",
    slug="fields-by-name",
    why="Importers pass the attributes that a model has, in the order it has them.",
    fix="look each field up by name: field_collection.find(name), or a loop that compares field.name",
)
def judge_field_order(subject: CheckedPlugin) -> str:
    """Create from the same fields in reverse order, and compare what the object says and computes."""
    subject.require_creator()
    _ = subject.life
    if len(subject.fields) < 2:
        raise NotApplicable("fewer than two fields were given")
    fields = PluginFieldCollection(reversed(copy_fields(subject.fields)))
    expected = _traits_in_order(subject, subject.make())
    try:
        found = first_difference(_traits_in_order(subject, subject.create(TensorRTPhase.BUILD, fields)), expected)
    except CallbackRaised as raised:
        raise Broken(f"with the fields in reverse order {raised}") from None
    if found:
        raise Broken(f"with the fields in reverse order {found}")
    return f"{len(fields)} fields"


def _traits_in_order(subject: CheckedPlugin, specimen: Specimen) -> Traits:
    """Traits without the order of the fields, which may be that of creation."""
    traits = traits_of(subject, specimen)
    stored = traits.get("get_fields_to_serialize", [])
    return traits | {"get_fields_to_serialize": sorted(stored, key=lambda field: str(field["name"]))}


def _require_name(what: str, value: Any, *, may_be_empty: bool) -> None:
    if not isinstance(value, str):
        raise Broken(f"{what} is {value!r}, expected a str")
    if not value and not may_be_empty:
        raise Broken(f"{what} is empty")
    if len(value.encode()) > MAX_NAME_BYTES:
        raise Broken(f"{what} has {len(value.encode())} bytes, expected at most {MAX_NAME_BYTES}")
