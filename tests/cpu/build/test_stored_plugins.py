"""Builds of plans that could not be loaded or run fail, with the text of the rule that the plugin breaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dovetail as dt
from dovetail.plugin.check import registered_rules
from tests.support.native_libraries import compile_library
from tests.support.plugins import PlainCreator, ScalePlugin

RULES = {rule.id: rule for rule in registered_rules()}


def build(plugin: Any, *creators: Any, namespace: str = "") -> bytes:
    """Build a plan of one plugin with creators registered at the builder."""
    builder = dt.Builder()
    for creator in creators:
        builder.get_plugin_registry().register_creator(creator, namespace)
    network = builder.create_network()
    x = network.add_input("x", dt.float32, (2, 3))
    layer = network.add_plugin_v3([x], [], plugin)
    network.mark_output(layer.get_output(0))
    return bytes(builder.build_serialized_network(network, builder.create_builder_config()))


def assert_rule(error: BaseException, rule_id: str) -> None:
    rule = RULES[rule_id]
    assert f"{rule.title} (rule {rule_id})" in str(error)
    assert f"fix: {rule.fix}" in str(error)


class ReturnsItself(ScalePlugin):
    def clone(self) -> Any:
        return self


class AttachesItself(ScalePlugin):
    def attach_to_context(self, context: Any) -> Any:
        return self


class ClonesOnce(ScalePlugin):
    """Every clone of any object is the same object."""

    shared: Any = None

    def clone(self) -> Any:
        type(self).shared = type(self).shared or super().clone()
        return type(self).shared


class AttachesOnce(ScalePlugin):
    """All contexts share one object."""

    shared: Any = None

    def attach_to_context(self, context: Any) -> Any:
        type(self).shared = type(self).shared or self.clone()
        return type(self).shared


class AttachesAnother(ScalePlugin):
    def attach_to_context(self, context: Any) -> Any:
        twin = self.clone()
        twin.plugin_name = "Another"
        return twin


class ClonesAnother(ScalePlugin):
    """The second clone is another plugin than the first."""

    def clone(self) -> Any:
        twin = super().clone()
        twin.plugin_version = str(int(self.plugin_version) + 1)
        return twin


class StoresAnotherField(ScalePlugin):
    def get_fields_to_serialize(self) -> Any:
        data = np.array([1], np.float32)
        return dt.PluginFieldCollection([dt.PluginField("gain", data, dt.PluginFieldType.FLOAT32)])


class RuntimeOnly(ScalePlugin):
    """An object that a plan makes lacks the runtime capability."""

    is_stored = False

    def get_capability_interface(self, type: Any) -> Any:
        return None if self.is_stored and type == dt.PluginCapabilityType.RUNTIME else self


def at_runtime(plugin_class: type[ScalePlugin], change: Callable[[Any], Any]) -> PlainCreator:
    """Return a creator whose runtime-phase objects are changed."""

    class Changing(PlainCreator):
        def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
            plugin = super().create_plugin(name, field_collection, phase)
            return change(plugin) if phase == dt.TensorRTPhase.RUNTIME else plugin

    return Changing("TestScale", plugin_class)


def _lose_runtime(plugin: Any) -> Any:
    plugin.is_stored = True
    return plugin


def _attach_itself(plugin: Any) -> Any:
    plugin.attach_to_context = lambda context: plugin
    return plugin


@pytest.mark.parametrize(
    ("plugin_class", "rule_id"),
    [
        (ReturnsItself, "R24"),
        (ClonesOnce, "R24"),
        (ClonesAnother, "R25"),
        (AttachesItself, "R29"),
        (AttachesOnce, "R29"),
        (AttachesAnother, "R30"),
        (StoresAnotherField, "R36"),
    ],
)
def test_a_plugin_that_cannot_be_copied_fails_the_build(plugin_class: type[ScalePlugin], rule_id: str) -> None:
    ClonesOnce.shared = AttachesOnce.shared = None
    with pytest.raises(dt.PluginError) as caught:
        build(plugin_class(), PlainCreator("TestScale", plugin_class))
    assert_rule(caught.value, rule_id)


@pytest.mark.parametrize("plugin_class", [ReturnsItself, AttachesItself])
def test_copies_are_checked_where_no_creator_is_registered(plugin_class: type[ScalePlugin]) -> None:
    with pytest.raises(dt.PluginError, match="returned the object itself"):
        build(plugin_class())


@pytest.mark.parametrize("names", [("TestScale", "1", "acme"), ("TestScale", "2", "")])
def test_a_creator_of_another_identity_fails_the_build(names: tuple[str, str, str]) -> None:
    creator = PlainCreator(names[0], ScalePlugin)
    creator.plugin_version = names[1]
    with pytest.raises(dt.PluginError, match="'TestScale' version '1', and no creator") as caught:
        build(ScalePlugin(), creator, namespace=names[2])
    assert_rule(caught.value, "R04")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda plugin: None, r"create_plugin \(RUNTIME\) returned None"),
        (_lose_runtime, r"get_capability_interface\(RUNTIME\) returned None"),
        (_attach_itself, "attach_to_context returned the object itself"),
        (lambda plugin: 1 // 0, r"create_plugin \(RUNTIME\) raised ZeroDivisionError"),
    ],
)
def test_a_plugin_that_cannot_be_created_from_the_plan_fails_the_build(
    change: Callable[[Any], Any], message: str
) -> None:
    with pytest.raises(dt.PluginError, match=message):
        build(RuntimeOnly(), at_runtime(RuntimeOnly, change))


class NoBuild(ScalePlugin):
    def get_capability_interface(self, type: Any) -> Any:
        return None if type == dt.PluginCapabilityType.BUILD else self


class WithoutEnqueue(ScalePlugin):
    enqueue = dt.IPluginV3OneRuntime.enqueue  # type: ignore[assignment]


def _rename(attribute: str, value: Any) -> Callable[[Any, Any], Any]:
    def change(original: Any, twin: Any) -> Any:
        setattr(twin, attribute, value)
        return twin

    return change


WRONG_RETURNS: dict[str, Callable[[Any, Any], Any]] = {
    "itself": lambda original, twin: original,
    "None": lambda original, twin: None,
    "number": lambda original, twin: 3,
    "class": lambda original, twin: type(twin),
    "text": lambda original, twin: "plugin",
    "list": lambda original, twin: [twin],
    "creator": lambda original, twin: PlainCreator("TestScale", ScalePlugin),
    "no build capability": lambda original, twin: NoBuild(),
    "no enqueue": lambda original, twin: WithoutEnqueue(),
    "other name": _rename("plugin_name", "Another"),
    "other version": _rename("plugin_version", "9"),
    "other namespace": _rename("plugin_namespace", "acme"),
    "name of bytes": _rename("plugin_name", b"TestScale"),
    "no name": _rename("plugin_name", None),
    "long name": _rename("plugin_name", "n" * 1024),
}
WHERE: dict[str, tuple[str, int]] = {
    "first clone": ("clone", 0),
    "second clone": ("clone", 1),
    "third clone": ("clone", 2),
    "first attach": ("attach_to_context", 0),
    "last attach": ("attach_to_context", 2),
}


@pytest.mark.parametrize("where", WHERE)
def test_every_wrong_return_fails_the_build(where: str) -> None:
    """Replace the result of one call of ``clone`` or ``attach_to_context`` by each kind of wrong object."""
    method, number = WHERE[where]
    passed = []
    for what, change in WRONG_RETURNS.items():
        calls: list[int] = []

        def copy(self: Any, *args: Any, change: Any = change, calls: list[int] = calls) -> Any:
            twin = ScalePlugin.clone(self)
            calls.append(0)
            return change(self, twin) if len(calls) == number + 1 else twin

        plugin_class = type("Wrong", (ScalePlugin,), {"tactics": (1, 2), method: copy})
        if method == "clone":
            plugin_class.attach_to_context = lambda self, context: ScalePlugin.clone(self)  # type: ignore[attr-defined]
        try:
            build(plugin_class(), PlainCreator("TestScale", ScalePlugin))
        except dt.PluginError:
            assert len(calls) > number
        else:
            passed.append((what, len(calls)))
    # The network knows the first clone only: one with another name may have a creator where the plan is loaded.
    assert [what for what, _ in passed] == (["other name"] if where == "first clone" else [])


def test_the_objects_that_a_build_creates_from_the_plan_are_destroyed() -> None:
    calls: list[tuple[str, Any]] = []
    build(ScalePlugin(2.0, calls), PlainCreator("TestScale", lambda factor: ScalePlugin(factor, calls)))
    names = [name for name, _ in calls]
    created, kept_by_network = 1, 1
    assert names.count("destroy") == names.count("clone") + created - kept_by_network


def test_a_plan_of_a_plugin_without_a_creator_is_built() -> None:
    assert build(ScalePlugin())
    assert build(ScalePlugin(), PlainCreator("Other", ScalePlugin))


def test_field_names_over_the_limit_fail_the_build() -> None:
    class LongName(ScalePlugin):
        def get_fields_to_serialize(self) -> Any:
            return dt.PluginFieldCollection([dt.PluginField("f" * 1024, np.zeros(1, np.int8), dt.PluginFieldType.INT8)])

    with pytest.raises(dt.PluginError, match="a field name is empty or too long"):
        build(LongName(), PlainCreator("TestScale", LongName))


def test_an_imported_model_fails_with_the_creator_of_another_plugin() -> None:
    import onnx

    class Renamed(ScalePlugin):
        def __init__(self, *args: Any, **fields: Any) -> None:
            super().__init__(*args, **fields)
            self.plugin_name = "Another"

    registry = dt.PluginRegistry()
    registry.register_creator(PlainCreator("TestScale", Renamed), "")
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> '
        "g (float[2, 3] x) => (float[2, 3] y) { y = TestScale <factor=2.0> (x) }"
    )
    with pytest.raises(dt.PluginError) as caught:
        dt.compile(model, registry=registry)
    assert_rule(caught.value, "R04")


@pytest.mark.parametrize(
    ("fault", "rule_id"),
    [("OtherName", "R04"), ("RuntimeRefuses", "R36"), ("AttachReturnsItself", "R29"), ("OneObject", "R24")],
)
def test_cpp_plugins_fail_the_build_alike(fault: str, rule_id: str) -> None:
    registry = dt.get_plugin_registry()
    library = registry.load_library(compile_library("broken"))
    try:
        creator = registry.get_creator(fault, "1")
        plugin = creator.create_plugin("p", dt.PluginFieldCollection(), dt.TensorRTPhase.BUILD)
        if fault == "OneObject":
            assert creator.create_plugin("q", dt.PluginFieldCollection(), dt.TensorRTPhase.BUILD) is plugin
            assert build(plugin)
            return
        with pytest.raises(dt.PluginError) as caught:
            build(plugin)
        assert_rule(caught.value, rule_id)
    finally:
        registry.deregister_library(library)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("CLONES_ITSELF", r"clone returned the object itself[\s\S]*rule R24"),
        (
            "DESERIALIZES_NULL",
            r"create_plugin \(RUNTIME\) raised [\s\S]*deserializePlugin returned null[\s\S]*rule R36",
        ),
    ],
)
def test_cpp_plugins_of_version_2_fail_the_build_alike(fault: str, message: str) -> None:
    registry = dt.get_plugin_registry()
    library = registry.load_library(compile_library("older", f"-D{fault}"))
    try:
        creator = registry.get_creator("Scale", "2")
        plugin = creator.create_plugin("s", dt.PluginFieldCollection(), dt.TensorRTPhase.BUILD)
        with pytest.raises(dt.PluginError, match=message):
            build(plugin)
        del plugin, creator
    finally:
        registry.deregister_library(library)


def test_compile_creates_plugins_with_the_registry_of_the_network() -> None:
    class Other(ScalePlugin):
        def enqueue(self, *arguments: Any) -> None:
            raise AssertionError("a plugin of the global registry ran")

    builder = dt.Builder()
    builder.get_plugin_registry().register_creator(PlainCreator("TestScale", ScalePlugin), "")
    network = builder.create_network()
    x = network.add_input("x", dt.float32, (2, 3))
    plugin = ScalePlugin(2.0)
    plugin.plugin_name = "TestScale"
    network.mark_output(network.add_plugin_v3([x], [], plugin).get_output(0))
    other = PlainCreator("TestScale", Other)
    registry = dt.get_plugin_registry()
    registry.register_creator(other, "")
    try:
        engine = dt.compile(network, providers=["cpu"])
        np.testing.assert_array_equal(engine(np.ones((2, 3), np.float32)), np.full((2, 3), 2, np.float32))
    finally:
        registry.deregister_creator(other)
