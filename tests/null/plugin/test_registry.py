"""The registry: registration, refusals that name both sides, parent search, near names, threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import dovetail
from dovetail.errors import PluginError
from dovetail.loggers import ErrorCode, ErrorRecorder, Logger
from dovetail.plugin.fields import PluginField, PluginFieldCollection
from dovetail.plugin.interfaces import IPluginCreatorV3One
from dovetail.plugin.registry import (
    PluginRegistry,
    get_builder_plugin_registry,
    get_plugin_registry,
    register_plugin,
)
from dovetail.types import EngineCapability


class Creator(IPluginCreatorV3One):
    def __init__(self, name: str = "Pad", version: str = "1", namespace: str = "") -> None:
        super().__init__()
        self.name = name
        self.plugin_version = version
        self.plugin_namespace = namespace
        self.field_names = PluginFieldCollection([PluginField("pads")])

    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
        raise NotImplementedError


@pytest.fixture
def registry() -> PluginRegistry:
    return PluginRegistry()


@pytest.fixture
def clean_global() -> Iterator[PluginRegistry]:
    registry = get_plugin_registry()
    before = registry.all_creators
    yield registry
    for creator in registry.all_creators:
        if not any(creator is known for known in before):
            registry.deregister_creator(creator)


def test_a_creator_is_found_by_name_version_and_namespace(registry: PluginRegistry) -> None:
    creators = [Creator("Pad"), Creator("Pad", "2"), Creator("Pad", "1"), Creator("Crop")]
    assert registry.register_creator(creators[0])
    assert registry.register_creator(creators[1], "")
    assert registry.register_creator(creators[2], "acme")
    assert registry.register_creator(creators[3], plugin_namespace="acme")
    assert registry.get_creator("Pad", "1") is creators[0]
    assert registry.get_creator("Pad", "2", "") is creators[1]
    assert registry.get_creator("Pad", "1", plugin_namespace="acme") is creators[2]
    assert registry.find_creator("Crop", "1") is None
    assert registry.all_creators == creators


def test_registration_sets_the_namespace(registry: PluginRegistry) -> None:
    passed, own, both = Creator("A"), Creator("B", namespace="own"), Creator("C", namespace="own")
    registry.register_creator(passed, "acme")
    registry.register_creator(own)
    registry.register_creator(both, "acme")
    assert (passed.plugin_namespace, own.plugin_namespace, both.plugin_namespace) == ("acme", "own", "acme")
    assert registry.get_creator("B", "1", "own") is own
    assert registry.find_creator("B", "1") is None


def test_a_duplicate_is_refused_and_both_are_named(registry: PluginRegistry) -> None:
    class Other(Creator):
        def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
            return None

    first = Creator()
    registry.register_creator(first, "acme")
    with pytest.raises(PluginError) as caught:
        registry.register_creator(Other(), "acme")
    text = str(caught.value)
    assert "'Pad' version '1' in namespace 'acme' is already registered" in text
    assert "expected only Creator (" in text
    assert "got also Other (" in text
    assert text.count("test_registry.py:") == 2
    assert registry.all_creators == [first]


def test_deregistering_works_once(registry: PluginRegistry) -> None:
    creator = Creator()
    registry.register_creator(creator)
    assert registry.deregister_creator(creator)
    assert not registry.deregister_creator(creator)
    assert registry.find_creator("Pad", "1") is None
    assert registry.register_creator(Creator())


class WrongParameters(Creator):
    def create_plugin(self, name: str) -> Any:  # type: ignore[override]
        return None


class RaisingName(Creator):
    @property
    def name(self) -> str:  # type: ignore[override]
        raise RuntimeError("not yet")

    @name.setter
    def name(self, value: str) -> None:
        pass


class FixedNamespace(Creator):
    plugin_namespace = property(lambda self: "fixed", lambda self, value: _refuse_setting())  # type: ignore[assignment]


def _refuse_setting() -> None:
    raise AttributeError("can't set")


def changed(**attributes: Any) -> Creator:
    creator = Creator()
    for name, value in attributes.items():
        setattr(creator, name, value)
    return creator


def without(attribute: str) -> Creator:
    creator = Creator()
    del creator.__dict__[attribute]
    return creator


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Creator, r"pass Creator\(\)"),
        (lambda: without("name"), "set self.name in __init__"),
        (lambda: without("plugin_version"), "set self.plugin_version in __init__"),
        (lambda: without("field_names"), "set self.field_names in __init__"),
        (lambda: changed(name=""), "name is empty"),
        (lambda: changed(name=7), "name is not a usable string"),
        (lambda: changed(name="x" * 1024), "at most 1023 bytes"),
        (lambda: changed(plugin_version="é" * 512), "at most 1023 bytes"),
        (lambda: changed(plugin_version=1), "plugin_version is not a usable string.*got 1"),
        (lambda: changed(plugin_namespace="n" * 1024), "plugin_namespace is not a usable string"),
        (lambda: changed(field_names=None), "PluginFieldCollection"),
        (lambda: changed(field_names="pads"), "not a collection of fields"),
        (lambda: changed(field_names=["pads"]), "not a PluginField"),
        (lambda: changed(field_names=[PluginField("")]), "field name is empty or too long"),
        (lambda: changed(field_names=[PluginField("f" * 1024)]), "field name is empty or too long"),
        (lambda: changed(create_plugin=None), "create_plugin is not a method"),
        (WrongParameters, r"expected create_plugin\(name, field_collection, phase\), got create_plugin\(name\)"),
        (RaisingName, "cannot be read: RuntimeError: not yet"),
    ],
)
def test_a_creator_is_checked_when_it_is_registered(registry: PluginRegistry, make: Any, words: str) -> None:
    with pytest.raises(PluginError, match=f"(?s){words}"):
        registry.register_creator(make())
    assert registry.all_creators == []


def test_a_name_of_1023_bytes_is_allowed(registry: PluginRegistry) -> None:
    assert registry.register_creator(changed(name="x" * 1023))


def test_a_namespace_that_cannot_be_set_is_refused(registry: PluginRegistry) -> None:
    creator = FixedNamespace.__new__(FixedNamespace)
    creator.name, creator.plugin_version, creator.field_names = "Pad", "1", PluginFieldCollection()
    with pytest.raises(PluginError, match="'acme' cannot be given"):
        registry.register_creator(creator, "acme")
    assert registry.register_creator(creator)
    assert registry.get_creator("Pad", "1", "fixed") is creator


def test_any_object_with_the_members_is_a_creator(registry: PluginRegistry) -> None:
    class Duck:
        name, plugin_version, field_names = "Duck", "1", ()

        def create_plugin(self, *arguments: Any) -> None:
            return None

    duck = Duck()
    assert registry.register_creator(duck, "pond")
    assert registry.get_creator("Duck", "1", "pond") is duck
    assert duck.plugin_namespace == "pond"  # type: ignore[attr-defined]


def test_a_child_searches_itself_first_and_then_its_parent() -> None:
    parent = PluginRegistry()
    child = PluginRegistry(parent=parent)
    shared, mine, local = Creator("Pad"), Creator("Pad"), Creator("Local")
    parent.register_creator(shared)
    assert child.get_creator("Pad", "1") is shared
    child.register_creator(mine)
    child.register_creator(local)
    assert child.get_creator("Pad", "1") is mine
    assert parent.get_creator("Pad", "1") is shared
    assert parent.find_creator("Local", "1") is None
    assert child.all_creators == [mine, local]
    assert child.all_creators_recursive == [mine, local, shared]


def test_parent_search_can_be_switched_off() -> None:
    parent = PluginRegistry()
    child = PluginRegistry(parent=parent)
    grandchild = PluginRegistry(parent=child)
    parent.register_creator(Creator())
    assert grandchild.find_creator("Pad", "1") is not None
    child.parent_search_enabled = False
    assert grandchild.find_creator("Pad", "1") is None
    assert grandchild.all_creators_recursive == []
    with pytest.raises(PluginError, match="the parent registry has it: set parent_search_enabled = True"):
        child.get_creator("Pad", "1")


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (("Padd", "1", ""), "near names are 'Pad' version '1'.*check the spelling"),
        (("pad", "1", ""), "near names are 'Pad' version '1'"),
        (("Pad", "3", ""), "near names are 'Pad' version '1'; 'Pad' version '2'.*ask for version '1', '2'"),
        (("Crop", "1", ""), "'Crop' version '1' in namespace 'acme'.*ask for namespace 'acme'"),
        (("Crop", "1", "acne"), "'Crop' version '1' in namespace 'acme'.*ask for namespace 'acme'"),
        (("Softmax", "1", ""), "registered are 'Crop'.*@dovetail.register_plugin"),
    ],
)
def test_a_failed_lookup_lists_near_names(registry: PluginRegistry, wanted: tuple[str, str, str], words: str) -> None:
    registry.register_creator(Creator("Pad"))
    registry.register_creator(Creator("Pad", "2"))
    registry.register_creator(Creator("Crop"), "acme")
    with pytest.raises(PluginError, match=f"(?s)no creator is registered for plugin '{wanted[0]}'.*{words}"):
        registry.get_creator(*wanted)


def test_near_names_come_from_parents_too() -> None:
    parent = PluginRegistry()
    parent.register_creator(Creator("Pad"))
    with pytest.raises(PluginError, match="near names are 'Pad'"):
        PluginRegistry(parent=parent).get_creator("Pat", "1")


def test_an_empty_registry_says_so(registry: PluginRegistry) -> None:
    with pytest.raises(PluginError, match="none is registered"):
        registry.get_creator("Pad", "1")


def test_long_lists_are_cut(registry: PluginRegistry) -> None:
    for index in range(20):
        registry.register_creator(Creator(f"Pad{index}"))
    with pytest.raises(PluginError, match="and 12 more"):
        registry.get_creator("Zzzz", "1")


def test_errors_are_recorded_and_raised(registry: PluginRegistry) -> None:
    registry.error_recorder = ErrorRecorder()
    with pytest.raises(PluginError):
        registry.get_creator("Pad", "1")
    with pytest.raises(PluginError):
        registry.register_creator(changed(name=""))
    assert registry.error_recorder.num_errors() == 2
    assert registry.error_recorder.get_error_code(0) is ErrorCode.INVALID_ARGUMENT
    assert len(registry.error_recorder.get_error_desc(0)) <= 127


def test_the_global_registry_serves_standard_builders() -> None:
    assert get_plugin_registry() is get_plugin_registry()
    assert get_builder_plugin_registry(EngineCapability.STANDARD) is get_plugin_registry()
    assert get_builder_plugin_registry(EngineCapability.SAFETY) is None
    assert get_builder_plugin_registry(EngineCapability.DLA_STANDALONE) is None
    assert dovetail.IPluginRegistry is PluginRegistry
    assert dovetail.get_plugin_registry() is get_plugin_registry()


def test_static_registration_by_decorator(clean_global: PluginRegistry) -> None:
    @register_plugin
    class First(Creator):
        def __init__(self) -> None:
            super().__init__("StaticFirst")

    @register_plugin(namespace="acme")
    class Second(Creator):
        def __init__(self) -> None:
            super().__init__("StaticSecond")

    assert isinstance(First, type)
    assert isinstance(clean_global.get_creator("StaticFirst", "1"), First)
    assert isinstance(clean_global.get_creator("StaticSecond", "1", "acme"), Second)
    with pytest.raises(PluginError, match="already registered"):
        register_plugin(First)


def test_static_registration_needs_a_class_without_arguments() -> None:
    class Needy(Creator):
        def __init__(self, name: str) -> None:
            super().__init__(name)

    with pytest.raises(PluginError, match="cannot be made without arguments"):
        register_plugin(Needy)
    with pytest.raises(PluginError, match="decorates a creator class"):
        register_plugin(Creator())  # type: ignore[call-overload]


def test_a_logger_comes_from_the_nearest_registry() -> None:
    logger = Logger()
    parent = PluginRegistry(logger=logger)
    child = PluginRegistry(parent=parent)
    assert child.logger is logger
    own = Logger()
    child.logger = own
    assert child.logger is own


def test_close_empties_a_registry_and_reports_leaks(capsys: pytest.CaptureFixture[str]) -> None:
    class Resource(dovetail.IPluginResource):  # type: ignore[misc,name-defined]
        def clone(self) -> Any:
            return self

        def release(self) -> Any:
            released.append(self)

    released: list[Any] = []
    registry = PluginRegistry()
    registry.register_creator(Creator())
    registry.acquire_plugin_resource("leak", Resource())
    registry.close()
    assert registry.all_creators == []
    assert len(released) == 1
    assert "'leak' was never released" in capsys.readouterr().err
    registry.close()


def test_many_threads_may_use_one_registry() -> None:
    parent = PluginRegistry()
    child = PluginRegistry(parent=parent)
    refused: list[PluginError] = []
    barrier = threading.Barrier(8)

    def work(number: int) -> None:
        barrier.wait()
        for index in range(60):
            mine = Creator(f"P{number}_{index}")
            parent.register_creator(mine)
            assert child.get_creator(mine.name, "1") is mine
            try:
                child.register_creator(Creator(f"Shared{index}"))
            except PluginError as error:
                refused.append(error)
            assert len(child.all_creators_recursive) > 0
            assert parent.deregister_creator(mine)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 7 * 60
    assert parent.all_creators == []
    assert len(child.all_creators) == 60
