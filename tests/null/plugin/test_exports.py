"""The lazy names of ``dovetail`` and ``dovetail.plugin`` all exist and are what they say."""

from __future__ import annotations

import importlib

import pytest

import dovetail
import dovetail.plugin


@pytest.mark.parametrize("name", dovetail.plugin.__all__)
def test_every_name_of_the_plugin_package_loads(name: str) -> None:
    value = getattr(dovetail.plugin, name)
    assert value is getattr(importlib.import_module(dovetail.plugin._EXPORTS[name]), name)
    assert name in dir(dovetail.plugin)
    if name in dovetail.__all__:
        assert getattr(dovetail, name) is value


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = dovetail.plugin.no_such_name
