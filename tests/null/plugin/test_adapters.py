"""Objects of other interfaces that bring an adapter: networks and the checker take them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dovetail as dt
from dovetail.plugin.adapters import resolve_creator, resolve_plugin
from dovetail.plugin.check.locate import locate
from dovetail.plugin.registry import PluginRegistry
from tests.support.plugins import ScalePlugin


class Adapter(ScalePlugin):
    """A plugin that stands for an object of an older interface."""

    adapted: Any = None

    def clone(self) -> Any:
        twin = super().clone()
        twin.adapted = Older()
        return twin


class Older:
    """Nothing but its adapter."""

    def as_plugin_v3(self) -> Any:
        return Adapter()


def test_a_network_takes_a_plugin_that_brings_an_adapter() -> None:
    network = dt.Builder().create_network()
    x = network.add_input("x", dt.float32, (2, 3))
    layer = network.add_plugin_v2([x], Older())
    assert isinstance(layer, dt.IPluginV2Layer)
    assert layer.type == dt.LayerType.PLUGIN_V2
    assert isinstance(layer.plugin, Older)
    assert layer.get_output(0).shape == (2, 3)


def test_what_brings_no_adapter_stays_what_it_is() -> None:
    plugin = ScalePlugin()
    assert resolve_plugin(plugin) is plugin
    assert resolve_creator(plugin) is plugin


def test_the_checker_finds_creators_and_classes_that_bring_an_adapter(tmp_path: Path) -> None:
    path = tmp_path / "older.py"
    path.write_text(
        "class Creator:\n    name = 'Older'\n    def as_creator_v3one(self):\n        return 'adapted'\n"
        "class Plugin:\n    def as_plugin_v3(self):\n        return 'plugin'\n"
    )
    assert locate(str(path)).creator == "adapted"
    assert locate(f"{path}:Creator").creator == "adapted"
    assert locate(f"{path}:Older").creator == "adapted"
    made = locate(f"{path}:Plugin").make_plugin
    assert made is not None
    assert made() == "plugin"
    with pytest.raises(dt.UsageError, match="is no creator and no plugin class"):
        locate(f"{path}:Other")


class OlderCreator:
    """A creator whose ``create_plugin`` knows no phase."""

    def as_creator_v3one(self) -> Any:
        return CreatorAdapter(self)


class CreatorAdapter(dt.IPluginCreatorV3One):
    name, plugin_version = "Older", "1"

    def __init__(self, adapted: Any) -> None:
        self.adapted = adapted
        self.field_names = dt.PluginFieldCollection([])

    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
        return Adapter()


def test_a_registry_keeps_the_adapter_and_lets_go_of_it_by_the_creator() -> None:
    registry, creator = PluginRegistry(), OlderCreator()
    assert registry.register_creator(creator)
    assert isinstance(registry.get_creator("Older", "1"), CreatorAdapter)
    assert registry.deregister_creator(creator)
    assert registry.all_creators == []
    assert not registry.deregister_creator(creator)


def test_a_library_may_bring_creators_of_older_interfaces(tmp_path: Path) -> None:
    path = tmp_path / "older_library.py"
    path.write_text(
        "from tests.null.plugin.test_adapters import OlderCreator\ndef get_creators():\n    return [OlderCreator()]\n"
    )
    registry = PluginRegistry()
    registry.load_library(path)
    assert type(registry.get_creator("Older", "1")).__name__ == "CreatorAdapter"
