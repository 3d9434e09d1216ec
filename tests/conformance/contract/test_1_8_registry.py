"""Rule 1.8: creators, registries and their parents, shared resources and plugin libraries."""

from __future__ import annotations

import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail as trt
from tests.conformance.contract.authors import Messages, Plus, PlusCreator, build, load, one_plugin

X = np.zeros((2, 3), np.float32)


def _creator(name: str = "Plus", version: str = "1", namespace: str = "") -> PlusCreator:
    creator = PlusCreator()
    creator.name, creator.plugin_version, creator.plugin_namespace = name, version, namespace
    return creator


@pytest.fixture
def registry() -> Any:
    return trt.Builder(Messages()).get_plugin_registry()


# creators


def test_a_creator_is_found_by_name_version_and_namespace(registry: Any) -> None:
    creators = [_creator(), _creator(version="2"), _creator(namespace="acme"), _creator("Other")]
    for creator in creators:
        assert registry.register_creator(creator, creator.plugin_namespace)
    assert registry.get_creator("Plus", "1") is creators[0]
    assert registry.get_creator("Plus", "1", "") is creators[0]
    assert registry.get_creator("Plus", "2", "") is creators[1]
    assert registry.get_creator("Plus", "1", "acme") is creators[2]
    assert list(registry.all_creators) == creators


def test_the_registry_keeps_creators_alive() -> None:
    import gc
    import weakref

    registry = trt.Builder(Messages()).get_plugin_registry()
    creator = _creator("Kept")
    there = weakref.ref(creator)
    registry.register_creator(creator, "")
    del creator
    gc.collect()
    assert registry.get_creator("Kept", "1", "") is there()


def test_the_same_name_version_and_namespace_is_refused(registry: Any) -> None:
    first = _creator()
    registry.register_creator(first, "")
    with pytest.raises(trt.PluginError, match="already registered"):
        registry.register_creator(_creator(), "")
    assert registry.get_creator("Plus", "1", "") is first
    assert registry.register_creator(_creator(), "elsewhere")
    assert registry.register_creator(_creator(version="2"), "")


def test_a_namespace_given_at_registration_is_the_creators(registry: Any) -> None:
    creator = _creator()
    registry.register_creator(creator, "acme")
    assert creator.plugin_namespace == "acme"
    assert registry.get_creator("Plus", "1", "acme") is creator


def test_deregistering(registry: Any) -> None:
    creator = _creator()
    registry.register_creator(creator, "")
    assert registry.deregister_creator(creator)
    assert not registry.deregister_creator(creator)
    assert registry.register_creator(creator, "")


def test_a_failed_lookup_names_what_is_near(registry: Any) -> None:
    registry.register_creator(_creator("CircularPad", "2", "acme"), "acme")
    with pytest.raises(trt.PluginError, match="acme"):
        registry.get_creator("CircularPad", "2", "")
    with pytest.raises(trt.PluginError, match="'2'"):
        registry.get_creator("CircularPad", "1", "acme")
    with pytest.raises(trt.PluginError, match="CircularPad"):
        registry.get_creator("CircularPadding", "1", "")


@pytest.mark.parametrize("missing", ["name", "plugin_version", "field_names"])
def test_a_creator_must_say_who_it_is(registry: Any, missing: str) -> None:
    creator = _creator()
    del creator.__dict__[missing]
    with pytest.raises(trt.PluginError, match=missing):
        registry.register_creator(creator, "")


def test_creators_create_by_position_and_by_keyword(registry: Any) -> None:
    registry.register_creator(_creator(), "")
    creator = registry.get_creator("Plus", "1", "")
    fields = trt.PluginFieldCollection(
        [trt.PluginField("addend", np.array([3], np.float32), trt.PluginFieldType.FLOAT32)]
    )
    assert creator.create_plugin("layer", fields, trt.TensorRTPhase.BUILD).addend == 3
    assert creator.create_plugin("layer", fc=fields, phase=trt.TensorRTPhase.BUILD).addend == 3
    assert [(f.name, f.type) for f in creator.field_names] == [("addend", trt.PluginFieldType.FLOAT32)]


# parents


def test_builders_and_runtimes_have_registries_of_their_own_under_the_global_one() -> None:
    top = trt.get_plugin_registry()
    assert top is trt.get_plugin_registry()
    mine, theirs = (trt.Builder(Messages()).get_plugin_registry() for _ in range(2))
    runtimes = trt.Runtime(Messages()).get_plugin_registry()
    assert len({id(r) for r in (top, mine, theirs, runtimes)}) == 4
    everybodys, local = _creator("ContractGlobal"), _creator("ContractLocal")
    mine.register_creator(local, "")
    top.register_creator(everybodys, "")
    try:
        for child in (mine, theirs, runtimes):
            assert child.get_creator("ContractGlobal", "1", "") is everybodys
        assert everybodys not in mine.all_creators
        assert everybodys in mine.all_creators_recursive
        assert local in mine.all_creators_recursive
        for other in (top, theirs, runtimes):
            with pytest.raises(trt.PluginError):
                other.get_creator("ContractLocal", "1", "")
    finally:
        assert top.deregister_creator(everybodys)


def test_the_search_in_parents_can_be_switched_off() -> None:
    top, child = trt.get_plugin_registry(), trt.Builder(Messages()).get_plugin_registry()
    creator = _creator("ContractGlobal")
    top.register_creator(creator, "")
    try:
        assert child.parent_search_enabled
        child.parent_search_enabled = False
        assert creator not in child.all_creators_recursive
        with pytest.raises(trt.PluginError, match="parent_search_enabled"):
            child.get_creator("ContractGlobal", "1", "")
        child.parent_search_enabled = True
        assert child.get_creator("ContractGlobal", "1", "") is creator
    finally:
        top.deregister_creator(creator)


def test_a_child_may_hide_a_creator_of_its_parent() -> None:
    top, child = trt.get_plugin_registry(), trt.Builder(Messages()).get_plugin_registry()
    creator, own = _creator("ContractGlobal"), _creator("ContractGlobal")
    top.register_creator(creator, "")
    try:
        assert child.register_creator(own, "")
        assert child.get_creator("ContractGlobal", "1", "") is own
    finally:
        top.deregister_creator(creator)


def test_builder_registries_by_capability() -> None:
    assert trt.get_builder_plugin_registry(trt.EngineCapability.STANDARD) is trt.get_plugin_registry()
    assert trt.get_builder_plugin_registry(trt.EngineCapability.SAFETY) is None
    assert trt.get_builder_plugin_registry(trt.EngineCapability.DLA_STANDALONE) is None


def test_errors_reach_the_registrys_recorder(registry: Any) -> None:
    registry.error_recorder = trt.ErrorRecorder()
    with pytest.raises(trt.PluginError):
        registry.get_creator("Nobody", "1", "")
    assert "Nobody" in registry.error_recorder.get_error_desc(0)


def test_a_plan_stores_name_version_namespace_tactic_and_fields() -> None:
    plugin = Plus(6.0)
    plugin.plugin_name, plugin.plugin_version, plugin.plugin_namespace = "Six", "3", "acme"
    plan = build(one_plugin(plugin))
    for wrong in (_creator("Six", "3", ""), _creator("Six", "1", "acme"), _creator("six", "3", "acme")):
        with pytest.raises(trt.PluginError, match="no creator is registered"):
            load(plan, wrong)
    right = _creator("Six", "3", "acme")
    np.testing.assert_array_equal(load(plan, right)(X), X + 6)


# resources


class Shared(trt.IPluginResource):
    """Counts what happens to it and to its clones."""

    def __init__(self, log: list[str] | None = None) -> None:
        trt.IPluginResource.__init__(self)
        self.log = [] if log is None else log
        self.value = 0

    def clone(self) -> Any:
        self.log.append("clone")
        twin = Shared(self.log)
        twin.value = 7
        return twin

    def release(self) -> Any:
        self.log.append("release")
        return 0


def test_the_first_acquire_keeps_a_clone_and_later_ones_return_it(registry: Any) -> None:
    passed = Shared()
    first = registry.acquire_plugin_resource("key", passed)
    assert first is not passed
    assert first.value == 7
    second = registry.acquire_plugin_resource("key", Shared())
    assert second is first
    assert passed.log == ["clone"]


def test_the_last_release_releases_and_frees_the_key(registry: Any) -> None:
    passed = Shared()
    first = registry.acquire_plugin_resource("key", passed)
    registry.acquire_plugin_resource("key", passed)
    assert registry.release_plugin_resource("key")
    assert passed.log == ["clone"]
    assert registry.release_plugin_resource("key")
    assert passed.log == ["clone", "release"]
    again = registry.acquire_plugin_resource("key", first)  # a released object can still be cloned
    assert again is not first
    registry.release_plugin_resource("key")


@pytest.mark.parametrize("key", ["never", ""])
def test_a_key_that_nobody_holds_cannot_be_released(registry: Any, key: str) -> None:
    with pytest.raises(trt.PluginError):
        registry.release_plugin_resource(key)


def test_threads_share_one_clone(registry: Any) -> None:
    passed, got = Shared(), []
    threads = [
        threading.Thread(target=lambda: got.append(registry.acquire_plugin_resource("key", passed))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(resource) for resource in got}) == 1
    assert passed.log == ["clone"]
    for _ in threads:
        registry.release_plugin_resource("key")
    assert passed.log == ["clone", "release"]


@pytest.mark.parametrize("broken", ["raise", "none"])
def test_a_resource_that_cannot_be_cloned_leaves_no_key(registry: Any, broken: str) -> None:
    class Broken(Shared):
        def clone(self) -> Any:
            if broken == "raise":
                raise MemoryError("no room")
            return None

    with pytest.raises(trt.PluginError):
        registry.acquire_plugin_resource("key", Broken())
    assert registry.acquire_plugin_resource("key", Shared()).value == 7


# libraries

LIBRARY = """
import numpy as np
import dovetail as trt

class Creator(trt.IPluginCreatorV3One):
    def __init__(self, name):
        trt.IPluginCreatorV3One.__init__(self)
        self.name, self.plugin_version, self.plugin_namespace = name, "1", "lib"
        self.field_names = trt.PluginFieldCollection([])

    def create_plugin(self, name, field_collection, phase):
        return None

found = []

def set_logger_finder(finder):
    found.append(finder)
    finder.find_logger().log(trt.Logger.INFO, "library loaded")

def {entry}():
    return [Creator("LibA"), Creator("LibB")]
"""


def _library(folder: Path, entry: str = "get_creators") -> Path:
    path = folder / "some_plugins.py"
    path.write_text(textwrap.dedent(LIBRARY.replace("{entry}", entry)))
    return path


@pytest.mark.parametrize("as_text", [True, False])
def test_a_library_brings_all_its_creators_and_takes_them_away(registry: Any, tmp_path: Path, as_text: bool) -> None:
    path = _library(tmp_path)
    handle = registry.load_library(str(path) if as_text else path)
    assert handle is not None
    assert registry.get_creator("LibA", "1", "lib").name == "LibA"
    assert registry.get_creator("LibB", "1", "lib").name == "LibB"
    assert registry.deregister_library(handle)
    with pytest.raises(trt.PluginError):
        registry.get_creator("LibA", "1", "lib")
    assert registry.load_library(path)  # and it can come back


def test_a_library_gets_a_logger(tmp_path: Path) -> None:
    messages = Messages()
    registry = trt.PluginRegistry(logger=messages)
    registry.load_library(_library(tmp_path))
    assert [text for _, text in messages.messages] == ["library loaded"]


def test_the_old_entry_point_is_accepted(tmp_path: Path) -> None:
    messages = Messages()
    registry = trt.PluginRegistry(logger=messages)
    registry.load_library(_library(tmp_path, "get_plugin_creators"))
    assert registry.get_creator("LibA", "1", "lib")
    assert "get_creators" in messages.text()


def test_a_library_with_one_known_creator_is_refused_whole(registry: Any, tmp_path: Path) -> None:
    registry.register_creator(_creator("LibB", "1", "lib"), "lib")
    with pytest.raises(trt.PluginError, match=r"LibB.*already registered"):
        registry.load_library(_library(tmp_path))
    with pytest.raises(trt.PluginError):
        registry.get_creator("LibA", "1", "lib")


def test_two_registries_load_the_same_library(tmp_path: Path) -> None:
    path = _library(tmp_path)
    registries = [trt.Runtime(Messages()).get_plugin_registry() for _ in range(2)]
    handles = [registry.load_library(path) for registry in registries]
    creators = [registry.get_creator("LibA", "1", "lib") for registry in registries]
    assert creators[0] is not creators[1]
    registries[0].deregister_library(handles[0])
    assert registries[1].get_creator("LibA", "1", "lib") is creators[1]


def test_a_handle_of_another_registry_is_refused(tmp_path: Path) -> None:
    one, other = (trt.Runtime(Messages()).get_plugin_registry() for _ in range(2))
    handle = one.load_library(_library(tmp_path))
    with pytest.raises(trt.PluginError):
        other.deregister_library(handle)
    assert one.deregister_library(handle)
    with pytest.raises(trt.PluginError):
        one.deregister_library(handle)


def test_a_path_that_is_no_library(registry: Any, tmp_path: Path) -> None:
    with pytest.raises(trt.PluginError):
        registry.load_library(tmp_path / "absent.py")
    (tmp_path / "empty.py").write_text("x = 1\n")
    with pytest.raises(trt.PluginError, match="get_creators"):
        registry.load_library(tmp_path / "empty.py")
