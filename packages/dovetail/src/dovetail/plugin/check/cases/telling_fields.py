"""Fields whose values tell.

Zero is lost where a parameter is taken with ``value or default``, and a number that a smaller type cannot hold is lost
where the field is stored as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from dovetail.plugin.check.cases.field_values import declared_fields, make_fields
from dovetail.plugin.check.driver import CheckedPlugin
from dovetail.plugin.check.host.calls import CallbackRaised
from dovetail.plugin.check.plugin_object import Specimen
from dovetail.plugin.check.state import numbers_of
from dovetail.plugin.check.traits import show_fields
from dovetail.plugin.fields import PluginField, PluginFieldCollection, PluginFieldType
from dovetail.rules import Blocked, Broken
from dovetail.types import TensorRTPhase

__all__ = ["find_cut_number", "find_lost_zero"]

Copy = Callable[[Specimen], Specimen]

_WIDE: Final[dict[PluginFieldType, float]] = {
    PluginFieldType.INT32: 70_001,
    PluginFieldType.INT64: 70_001,
    PluginFieldType.FLOAT32: 1234.5678,
    PluginFieldType.FLOAT64: 1234.5678,
}
"""Numbers that need more than sixteen bits, and that no plugin has by chance."""
_NO_NUMBERS: Final = (PluginFieldType.CHAR, PluginFieldType.UNKNOWN, PluginFieldType.DIMS)
_ROUNDED: Final = 1e-6


def find_lost_zero(subject: CheckedPlugin, copy: Copy) -> str | None:
    """What a copy stores otherwise than its original when a field is zero; a plugin may refuse zero."""
    for field in _vary_each(subject, lambda kind: None if kind in _NO_NUMBERS else 0):
        try:
            original = subject.create(TensorRTPhase.BUILD, _with_field(subject.fields, field))
            stored, again = subject.serialize(original), subject.serialize(copy(original))
        except (Blocked, Broken, CallbackRaised):
            continue
        if again != stored:
            return f"{show_fields(stored)} became {show_fields(again)}"
    return None


def find_cut_number(subject: CheckedPlugin, copy: Copy) -> str | None:
    """Which attribute held a number of a field in the original and another one in the copy; a plugin may refuse it."""
    for field in _vary_each(subject, _WIDE.get):
        try:
            original = subject.create(TensorRTPhase.BUILD, _with_field(subject.fields, field))
            held, kept = numbers_of(original), numbers_of(copy(original))
        except (Blocked, Broken, CallbackRaised):
            continue
        wanted = float(np.asarray(field.data).reshape(-1)[0])
        for path, number in held.items():
            if number == wanted and path in kept and abs(kept[path] - wanted) > _ROUNDED * abs(wanted):
                return f"field '{field.name}' was {number:g}, and {path} is {kept[path]:g} then"
    return None


def _vary_each(subject: CheckedPlugin, choose: Callable[[PluginFieldType], Any]) -> Iterator[PluginField]:
    """Each field that was left to the checker, with a number that is chosen by its type."""
    declared = {} if subject.creator is None else declared_fields(subject.creator)
    for name, kind in declared.items():
        known, number = subject.fields.find(name), choose(kind)
        if name in subject.given or number is None:
            continue
        size = 1 if known is None or known.data is None else np.size(known.data)
        yield from make_fields(declared, {name: [number] * size})


def _with_field(fields: PluginFieldCollection, field: PluginField) -> PluginFieldCollection:
    return PluginFieldCollection([*(item for item in fields if item.name != field.name), field])
