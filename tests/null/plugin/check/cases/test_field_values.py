"""Values of fields from a command line."""

from __future__ import annotations

import pytest

from dovetail.plugin.check.cases.field_values import make_fields
from dovetail.plugin.fields import PluginFieldType


@pytest.mark.parametrize(
    ("value", "field_type"),
    [
        ("3", PluginFieldType.INT32),
        ("1.5,2", PluginFieldType.FLOAT32),
        ("linear", PluginFieldType.CHAR),
        (b"\x01\x02", PluginFieldType.UNKNOWN),
    ],
)
def test_a_field_that_is_declared_without_a_type_gets_that_of_its_value(
    value: object, field_type: PluginFieldType
) -> None:
    (field,) = make_fields({"k": PluginFieldType.UNKNOWN}, {"k": value})
    assert field.type is field_type
