"""Rule 2.1, the table of plugin members: required ones, defaults, and what is said when one is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail as trt
from tests.conformance.contract.authors import LINEAR, Plus, PlusCreator, build, load, one_plugin

X = np.zeros((2, 3), np.float32)


class Least(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime):
    """Only what the table calls required."""

    def __init__(self) -> None:
        trt.IPluginV3.__init__(self)
        trt.IPluginV3OneCore.__init__(self)
        trt.IPluginV3OneBuild.__init__(self)
        trt.IPluginV3OneRuntime.__init__(self)
        self.plugin_name, self.plugin_version, self.plugin_namespace = "Plus", "1", ""
        self.num_outputs = 1

    def get_capability_interface(self, type: Any) -> Any:
        return self

    def clone(self) -> Any:
        return Least()

    def get_output_data_types(self, input_types: Any) -> Any:
        return [input_types[0]]

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        return [trt.DimsExprs(inputs[0])]

    def configure_plugin(self, inp: Any, out: Any) -> None:
        pass

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        return bool(in_out[pos].desc.format == LINEAR)

    def on_shape_change(self, inp: Any, out: Any) -> None:
        pass

    def set_tactic(self, tactic: int) -> None:
        pass

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int
    ) -> None:
        from dovetail.plugin import as_array

        as_array(outputs[0], output_desc[0])[...] = as_array(inputs[0], input_desc[0]) + 1

    def attach_to_context(self, context: Any) -> Any:
        return self.clone()

    def get_fields_to_serialize(self) -> Any:
        return trt.PluginFieldCollection([])


class LeastCreator(PlusCreator):
    def create_plugin(self, name: str, fc: Any, phase: Any) -> Any:
        return Least()


def test_the_required_members_are_enough() -> None:
    np.testing.assert_array_equal(load(build(one_plugin(Least())), LeastCreator())(X), 1)


def test_defaults_of_the_optional_members() -> None:
    plugin = Least()
    assert plugin.format_combination_limit == 100
    assert plugin.timing_cache_id is None
    assert plugin.metadata_string is None
    assert plugin.get_workspace_size([], []) == 0
    assert list(plugin.get_valid_tactics()) == []
    assert plugin.destroy() is None
    assert trt.IPluginV3OneBuildV2().get_aliased_input(0) == -1


REQUIRED_METHODS = (
    "get_capability_interface",
    "clone",
    "get_output_data_types",
    "get_output_shapes",
    "configure_plugin",
    "supports_format_combination",
    "on_shape_change",
    "set_tactic",
    "enqueue",
    "attach_to_context",
    "get_fields_to_serialize",
)


@pytest.mark.parametrize("method", REQUIRED_METHODS)
def test_a_missing_method_is_named(method: str) -> None:
    members = {name: value for name, value in vars(Least).items() if name != method and not name.startswith("__")}
    lacking = type("Lacking", Least.__bases__, {**members, "__init__": Least.__init__})
    with pytest.raises((trt.PluginError, NotImplementedError), match=method):
        build(one_plugin(lacking()))


@pytest.mark.parametrize("attribute", ["plugin_name", "plugin_version", "plugin_namespace", "num_outputs"])
def test_a_missing_attribute_is_named(attribute: str) -> None:
    plugin = Least()
    del plugin.__dict__[attribute]
    with pytest.raises(AttributeError, match=rf"{attribute} not initialized"):
        getattr(plugin, attribute)

    class Forgetful(Least):
        def clone(self) -> Any:
            cloned = Forgetful()
            cloned.__dict__.clear()
            cloned.__dict__.update(self.__dict__)
            return cloned

    forgetful = Forgetful()
    del forgetful.__dict__[attribute]
    with pytest.raises(trt.PluginError, match=rf"{attribute} not initialized"):
        build(one_plugin(forgetful))


def test_attributes_may_be_of_the_class() -> None:
    class Declared(Plus):
        plugin_name = "Plus"
        plugin_version = "1"
        plugin_namespace = ""
        num_outputs = 1
        metadata_string = "of the class"
        timing_cache_id = ""
        format_combination_limit = 3

        def __init__(self, addend: float = 1.0, trace: Any = None) -> None:
            self.addend, self.tactic, self.number = addend, None, 0
            self.trace = trace if trace is not None else []

    np.testing.assert_array_equal(load(build(one_plugin(Declared())), PlusCreator(Declared))(X), 1)


def test_attributes_may_be_properties() -> None:
    class Computed(Least):
        def __init__(self) -> None:
            pass

        @property
        def plugin_name(self) -> str:  # type: ignore[override]
            return "Plus"

        @property
        def plugin_version(self) -> str:  # type: ignore[override]
            return "1"

        @property
        def plugin_namespace(self) -> str:  # type: ignore[override]
            return ""

        @property
        def num_outputs(self) -> int:  # type: ignore[override]
            return 1

        def clone(self) -> Any:
            return Computed()

    np.testing.assert_array_equal(load(build(one_plugin(Computed())), LeastCreator())(X), 1)


def test_what_is_no_plugin_is_refused() -> None:
    for thing in (None, 3, Least, object()):
        with pytest.raises(trt.DovetailError):
            build(one_plugin(thing))


def test_a_base_of_ones_own_may_stand_between() -> None:
    class Base(Plus):
        pass

    class Derived(Base):
        def compute(self, *args: Any) -> None:
            super().compute(*args)

    np.testing.assert_array_equal(load(build(one_plugin(Derived())), PlusCreator(Derived))(X), 1)


def test_super_init_works_too() -> None:
    class Modern(Least):
        def __init__(self) -> None:
            super().__init__()

        def clone(self) -> Any:
            return Modern()

    np.testing.assert_array_equal(load(build(one_plugin(Modern())), LeastCreator())(X), 1)


def test_arguments_come_by_position_whatever_they_are_called() -> None:
    class Renamed(Plus):
        def get_capability_interface(self, kind: Any) -> Any:
            return self

        def get_output_shapes(self, a: Any, b: Any, c: Any) -> Any:
            return super().get_output_shapes(a, b, c)

        def supports_format_combination(self, a: Any, b: Any, c: Any) -> Any:
            return super().supports_format_combination(a, b, c)

        def enqueue(self, *args: Any) -> None:
            assert len(args) == 6
            super().enqueue(*args)

        def attach_to_context(self, resources: Any) -> Any:
            return super().attach_to_context(resources)

    class Creator(PlusCreator):
        def create_plugin(self, layer_name: str, fields: Any, when: Any) -> Any:
            return super().create_plugin(layer_name, fields, when)

    np.testing.assert_array_equal(load(build(one_plugin(Renamed())), Creator(Renamed))(X), 1)


def test_the_tactic_is_carried_by_dict_update_as_samples_do() -> None:
    class Sample(Plus):
        tactics = (1, 2)

        def clone(self) -> Any:
            cloned_plugin = Sample()
            cloned_plugin.__dict__.update(self.__dict__)
            return cloned_plugin

        def on_shape_change(self, inp: Any, out: Any) -> None:
            assert self.tactic in (1, 2)

    engine = load(build(one_plugin(Sample())), PlusCreator(Sample))
    np.testing.assert_array_equal(engine(X), 1)


def test_a_plugin_with_slots_of_its_own() -> None:
    class Slotted(Least):
        __slots__ = ("secret",)

        def __init__(self) -> None:
            Least.__init__(self)
            self.secret = 5

        def clone(self) -> Any:
            return Slotted()

    np.testing.assert_array_equal(load(build(one_plugin(Slotted())), LeastCreator())(X), 1)
