"""What can be seen of a plugin object from outside, for telling whether two objects are the same layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.plugin.check.host.calls import CallbackRaised, call, read, read_or
from dovetail.plugin.check.host.hostile import HostExprBuilder
from dovetail.plugin.check.host.runs import Run, disagreement
from dovetail.plugin.check.plugin_object import Specimen
from dovetail.plugin.fields import PluginField, PluginFieldType, decode_fields
from dovetail.plugin.interfaces import IPluginV3OneBuildV2
from dovetail.rules import Blocked, Broken

if TYPE_CHECKING:
    from dovetail.plugin.check.driver import CheckedPlugin

__all__ = ["Traits", "first_difference", "identity_of", "parameters_of", "results_of", "show_fields", "traits_of"]

Traits = dict[str, Any]
"""What was asked -> what came back, in a form that compares."""

_IDENTITY = ("plugin_name", "plugin_version", "plugin_namespace")
_BUILD_ATTRIBUTES = ("num_outputs", "format_combination_limit", "timing_cache_id", "metadata_string")


def traits_of(subject: CheckedPlugin, specimen: Specimen) -> Traits:
    """Everything a build-phase object says about itself before it is configured, and what it computes."""
    life, build = subject.life, specimen.build
    _ = life.layer
    traits = identity_of(specimen)
    traits |= {name: read(build, name) for name in _BUILD_ATTRIBUTES}
    traits["get_output_data_types"] = list(life.ask_types(build))
    traits["get_output_shapes"] = repr([list(dims) for dims in life.ask_shapes(build, HostExprBuilder())])
    if isinstance(build, IPluginV3OneBuildV2):
        traits["get_aliased_input"] = [call(build, "get_aliased_input", i) for i in range(life.num_outputs)]
    traits["supports_format_combination"] = life.search_formats(specimen).accepted
    traits |= parameters_of(subject, specimen)
    return traits | results_of(subject, specimen)


def identity_of(specimen: Specimen) -> Traits:
    """Name, version and namespace, as far as they are set."""
    return {name: read_or(specimen.core, name, None) for name in _IDENTITY}


def parameters_of(subject: CheckedPlugin, specimen: Specimen) -> Traits:
    """The fields of the object as it is; nothing where it has none before it is configured."""
    try:
        return {"get_fields_to_serialize": subject.serialize(specimen)}
    except (Broken, CallbackRaised):
        return {}


def results_of(subject: CheckedPlugin, specimen: Specimen) -> Traits:
    """What the object computes once attached and configured; nothing where that differs from object to object."""
    try:
        subject.require_repeatable()
    except Blocked:
        return {}
    case = subject.main_cell.case
    prepared = subject.life.prepare(source=specimen)
    prepared.reshape(case)
    return {"enqueue": prepared.run(case)}


def first_difference(got: Mapping[str, Any], expected: Mapping[str, Any]) -> str | None:
    """The first expected trait that is missing or differs, in words."""
    for name, value in expected.items():
        if name not in got:
            return f"{name} fails"
        if isinstance(value, Run):
            found = disagreement(got[name], value)
            if found:
                return f"{name}: {found}"
        elif not _is_same(got[name], value):
            return f"{name} gives {_show(got[name])} instead of {_show(value)}"
    return None


def _is_same(got: Any, expected: Any) -> bool:
    try:
        return bool(got == expected)
    except (TypeError, ValueError):  # values that do not compare, such as arrays where text belongs
        return repr(got) == repr(expected)


def show_fields(stored: Sequence[Mapping[str, Any]]) -> str:
    """Stored fields in a readable form."""
    fields = [field for field in decode_fields(stored) if field.type is not PluginFieldType.DIMS]
    return ", ".join(f"{field.name}={_show_data(field)}" for field in fields)


def _show_data(field: PluginField) -> str:
    if field.data is None:
        return "none"
    return (
        ascii(field.data.tobytes().decode(errors="replace"))
        if field.type is PluginFieldType.CHAR
        else str(field.data.tolist())
    )


def _show(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return show_fields(value)
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
