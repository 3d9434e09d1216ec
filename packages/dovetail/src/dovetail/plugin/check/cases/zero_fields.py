"""Fields that are zero: the value that is lost where a parameter is taken with ``value or default``."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from dovetail.plugin.check.cases.field_values import declared_fields, make_fields
from dovetail.plugin.check.driver import CheckedPlugin
from dovetail.plugin.check.host.calls import CallbackRaised
from dovetail.plugin.check.plugin_object import Specimen
from dovetail.plugin.check.traits import show_fields
from dovetail.plugin.fields import PluginField, PluginFieldCollection, PluginFieldType
from dovetail.rules import Blocked, Broken
from dovetail.types import TensorRTPhase

__all__ = ["find_lost_zero"]

_NO_NUMBERS = (PluginFieldType.CHAR, PluginFieldType.UNKNOWN, PluginFieldType.DIMS)


def find_lost_zero(subject: CheckedPlugin, copy: Callable[[Specimen], Specimen]) -> str | None:
    """What a copy stores otherwise than its original when a field is zero; a plugin may refuse zero."""
    for fields in _zero_fields(subject):
        try:
            original = subject.create(TensorRTPhase.BUILD, fields)
            stored, again = subject.serialize(original), subject.serialize(copy(original))
        except (Blocked, Broken, CallbackRaised):
            continue
        if again != stored:
            return f"{show_fields(stored)} became {show_fields(again)}"
    return None


def _zero_fields(subject: CheckedPlugin) -> Iterator[PluginFieldCollection]:
    """The fields of the check with one of them zero, for each that has numbers and was left to the checker."""
    declared = {} if subject.creator is None else declared_fields(subject.creator)
    for name, kind in declared.items():
        known = subject.fields.find(name)
        if name in subject.given or kind in _NO_NUMBERS:
            continue
        size = 1 if known is None or known.data is None else np.size(known.data)
        (zero,) = make_fields(declared, {name: [0] * size})
        yield _with_field(subject.fields, zero)


def _with_field(fields: PluginFieldCollection, field: PluginField) -> PluginFieldCollection:
    return PluginFieldCollection([*(item for item in fields if item.name != field.name), field])
