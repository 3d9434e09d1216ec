"""Plugin libraries of installed packages: found without importing, loaded into a registry on request alone."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dovetail.cli import main
from dovetail.errors import PluginError
from dovetail.plugin.libraries import find_installed_libraries
from dovetail.plugin.registry import PluginRegistry, get_plugin_registry
from tests.support.distributions import install

LIBRARY = """
import dovetail

{decorator}
class Creator(dovetail.IPluginCreatorV3One):
    def __init__(self):
        super().__init__()
        self.name = "{creator}"
        self.plugin_version = "1"
        self.plugin_namespace = ""
        self.field_names = dovetail.PluginFieldCollection([])

{get_creators}
"""

_numbers = itertools.count()

Offer = Callable[..., str]


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of which no name is cut."""
    monkeypatch.setenv("COLUMNS", "250")


@pytest.fixture
def offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Offer:
    """Install a package with one plugin library; its entry point and module have the name that comes back."""
    for variable in ("DOVETAIL_AUTOLOAD", "DOVETAIL_PLUGINS_ALLOW"):
        monkeypatch.delenv(variable, raising=False)

    def write(text: str | None = None, *, static: bool = False, target: str | None = None) -> str:
        name = f"small_plugins_{next(_numbers)}"
        decorator = "@dovetail.register_plugin" if static else ""
        function = "" if static else "def get_creators():\n    return [Creator()]"
        library = text or LIBRARY.format(decorator=decorator, creator=f"Layer_{name}", get_creators=function)
        install(tmp_path, f"dist-{name}", {"dovetail.plugins": {name: target or name}}, {name: library})
        monkeypatch.syspath_prepend(tmp_path)
        return name

    return write


@pytest.fixture
def registry() -> PluginRegistry:
    return PluginRegistry(parent=get_plugin_registry())


def test_found_without_importing(offer: Offer) -> None:
    name = offer()
    (found,) = [offered for offered in find_installed_libraries() if offered.name == name]
    assert (found.origin, found.target) == (f"dist-{name} 1.2", name)
    assert name not in sys.modules


def test_loaded_on_request_and_only_what_was_asked_for(offer: Offer, registry: PluginRegistry) -> None:
    name, other = offer(), offer()
    (library,) = registry.load_entry_points([name, name])
    assert (library.name, library.module_name) == (name, name)
    assert f"dist-{name} 1.2" in library.path
    assert registry.get_creator(f"Layer_{name}", "1")
    assert other not in sys.modules
    assert get_plugin_registry().find_creator(f"Layer_{name}", "1") is None
    registry.deregister_library(library)
    assert registry.find_creator(f"Layer_{name}", "1") is None
    assert name in sys.modules  # an installed module belongs to the interpreter


def test_without_names_all_are_loaded(offer: Offer, registry: PluginRegistry) -> None:
    names = {offer(), offer()}
    assert names <= {library.name for library in registry.load_entry_points()}


def test_creators_of_decorators_reach_every_registry_that_asks(offer: Offer, registry: PluginRegistry) -> None:
    name = offer(static=True)
    registry.load_entry_points([name])
    second = PluginRegistry()
    second.load_entry_points([name])
    assert registry.get_creator(f"Layer_{name}", "1")
    assert second.get_creator(f"Layer_{name}", "1")
    assert get_plugin_registry().find_creator(f"Layer_{name}", "1") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raise ValueError('no licence')", "raised ValueError: no licence"),
        ("import no_such_package", "ModuleNotFoundError"),
        ("x = 1", "brings no creators"),
        ("def get_creators():\n    return 5", "returned no list"),
    ],
)
def test_a_wrong_library_is_named(offer: Offer, registry: PluginRegistry, text: str, message: str) -> None:
    name = offer(text)
    with pytest.raises(PluginError) as caught:
        registry.load_entry_points([name])
    assert message in str(caught.value)
    assert f"plugin library '{name}' of dist-{name} 1.2" in str(caught.value)
    assert registry.libraries == []


def test_an_entry_point_that_names_no_module(offer: Offer, registry: PluginRegistry) -> None:
    with pytest.raises(PluginError, match="the entry point names no module; expected module, got a:b"):
        registry.load_entry_points([offer(target="a:b")])


def test_a_name_that_nobody_offers(offer: Offer, registry: PluginRegistry) -> None:
    name = offer()
    with pytest.raises(PluginError, match=f"no installed package offers it; expected one of {name}"):
        registry.load_entry_points([name + "x"])


def test_the_switch_and_the_allow_list(offer: Offer, registry: PluginRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed, other = offer(), offer()
    monkeypatch.setenv("DOVETAIL_PLUGINS_ALLOW", allowed)
    assert [library.name for library in registry.load_entry_points()] == [allowed]
    with pytest.raises(PluginError, match=f"'{other}' is not on the allow-list"):
        registry.load_entry_points([other])
    monkeypatch.setenv("DOVETAIL_AUTOLOAD", "0")
    assert registry.load_entry_points() == []
    with pytest.raises(PluginError, match="switched off"):
        registry.load_entry_points([allowed])
    assert other not in sys.modules


@pytest.mark.usefixtures("wide")
def test_commands_show_where_things_come_from(offer: Offer, capsys: pytest.CaptureFixture[str]) -> None:
    name, broken = offer(), offer("raise ValueError('no licence')")
    assert main(["plugin", "list"]) == 0
    text = capsys.readouterr().out
    assert f"dist-{name} 1.2" in text
    assert "not imported" in text
    assert name not in sys.modules
    assert main(["plugin", "list", "--load"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"Layer_{name}" in text
    assert f"cannot be used: plugin library '{broken}' of dist-{broken} 1.2: the library raised ValueError" in text


@pytest.mark.usefixtures("wide")
def test_a_command_can_name_one(offer: Offer, capsys: pytest.CaptureFixture[str]) -> None:
    name = offer()
    assert main(["plugin", "list", "--plugins", f"@{name}"]) == 0
    assert f"Layer_{name}" in capsys.readouterr().out
    assert main(["plugin", "list", "--plugins", "@nobody"]) == 2
    assert "no installed package offers it" in capsys.readouterr().err


def test_importing_dovetail_loads_none(offer: Offer, tmp_path: Path) -> None:
    name = offer("raise ValueError('imported')")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import dovetail; dovetail.get_plugin_registry()"
    code += f"; assert {name!r} not in sys.modules and 'importlib.metadata' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
