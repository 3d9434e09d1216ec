"""Plugin layers: the calls on the user's object, what the network keeps, and what is refused."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import dovetail as dt
from dovetail.network.api.definition import Network
from dovetail.network.plugins import PLUGIN_DOMAIN
from tests.support.plugins import ScalePlugin


class Watched(ScalePlugin):
    """Also notes the capability calls and readings of the attributes that the contract names."""

    def __init__(self, factor: float = 2.0, calls: Any = None) -> None:
        super().__init__(factor, calls)
        del self.num_outputs, self.plugin_name

    def get_capability_interface(self, type: Any) -> Any:
        self.note("get_capability_interface", id(self))
        return self

    @property
    def num_outputs(self) -> int:
        self.note("num_outputs", id(self))
        return 1

    @num_outputs.setter
    def num_outputs(self, value: int) -> None:
        pass

    @num_outputs.deleter
    def num_outputs(self) -> None:
        pass

    @property
    def plugin_name(self) -> str:
        self.note("plugin_name", id(self))
        return "Watched"

    @plugin_name.setter
    def plugin_name(self, value: str) -> None:
        pass

    @plugin_name.deleter
    def plugin_name(self) -> None:
        pass


@pytest.fixture
def network() -> Network:
    network = Network()
    network.add_input("x", dt.float32, (2, -1))
    return network


def test_the_order_of_calls(network: Network) -> None:
    calls: list[tuple[str, Any]] = []
    plugin = Watched(2.0, calls)
    layer = network.add_plugin_v3([network.get_input(0)], [], plugin)
    names = [name for name, _ in calls]
    clone = names.index("clone")
    before = [name for index, name in enumerate(names[:clone]) if index == 0 or names[index - 1] != name]
    assert before == ["get_capability_interface", "num_outputs", "get_output_data_types", "num_outputs"]
    assert "plugin_name" in names[clone:], "the name is asked of the clone"
    assert all(detail != id(plugin) for name, detail in calls[clone + 1 :] if isinstance(detail, int))
    assert layer.plugin is not plugin
    assert layer.plugin is network.plugins[0].handle.plugin


def test_the_users_object_is_not_used_afterwards(network: Network) -> None:
    calls: list[tuple[str, Any]] = []
    plugin = ScalePlugin(2.0, calls)
    layer = network.add_plugin_v3([network.get_input(0)], [], plugin)
    plugin.__dict__.clear()
    del calls[:]
    output = layer.get_output(0)
    assert (output.dtype, output.shape) == (dt.float32, (2, -1))
    assert {name for name, _ in calls} == {"get_output_data_types", "get_output_shapes"}


def test_names_and_node(network: Network) -> None:
    layer = network.add_plugin_v3([network.get_input(0)], [], ScalePlugin())
    assert layer.name == "(Unnamed Layer* 0) [PluginV3_V3ONE]"
    assert layer.get_output(0).name == "(Unnamed Layer* 0) [PluginV3_V3ONE]_output"
    assert layer.type == dt.LayerType.PLUGIN_V3
    assert (layer.num_inputs, layer.num_shape_inputs) == (1, 0)
    network.mark_output(layer.get_output(0))
    model = network.to_model()
    (node,) = model.graph
    assert (node.domain, node.op_type, node.name) == (PLUGIN_DOMAIN, "PluginV3", layer.name)
    assert node.attributes["plugin"].as_int() == 0
    assert model.opset_imports == {"": 25, PLUGIN_DOMAIN: 1}


def test_shape_inputs_come_after_the_inputs(network: Network) -> None:
    numbers = network.add_input("numbers", dt.int32, (2,))
    layer = network.add_plugin_v3([network.get_input(0)], [numbers], ScalePlugin())
    assert (layer.num_inputs, layer.num_shape_inputs) == (2, 1)
    assert numbers.is_shape_tensor
    assert not network.get_input(0).is_shape_tensor
    assert (network.plugins[0].num_inputs, network.plugins[0].num_shape_inputs) == (1, 1)


def test_keywords(network: Network) -> None:
    layer = network.add_plugin_v3(inputs=[network.get_input(0)], shape_inputs=[], plugin=ScalePlugin())
    assert layer.num_outputs == 1


def test_the_network_lets_go_of_its_clones() -> None:
    calls: list[tuple[str, Any]] = []
    network = Network()
    network.add_plugin_v3([network.add_input("x", dt.float32, (1,))], [], ScalePlugin(1.0, calls))
    assert "destroy" not in [name for name, _ in calls]
    del network
    gc.collect()
    assert [name for name, _ in calls].count("destroy") == 1


class _Unfinished(dt.IPluginV3, dt.IPluginV3OneCore, dt.IPluginV3OneBuild, dt.IPluginV3OneRuntime):
    def __init__(self) -> None:
        self.plugin_name, self.plugin_version, self.plugin_namespace, self.num_outputs = "Half", "1", "", 1

    def get_capability_interface(self, type: Any) -> Any:
        return self

    def clone(self) -> Any:
        return self


def test_missing_methods_are_listed(network: Network) -> None:
    message = (
        "plugin 'Half' version '1'.*required method.s. not implemented: get_output_data_types, get_output_shapes, "
        "configure_plugin, supports_format_combination, on_shape_change, set_tactic, enqueue, attach_to_context, "
        "get_fields_to_serialize"
    )
    with pytest.raises(dt.PluginError, match=message):
        network.add_plugin_v3([network.get_input(0)], [], _Unfinished())
    assert network.num_layers == 0
    assert not network.plugins


class _NoRuntime(ScalePlugin):
    def get_capability_interface(self, type: Any) -> Any:
        return None if type == dt.PluginCapabilityType.RUNTIME else self


def test_a_missing_capability_is_named(network: Network) -> None:
    with pytest.raises(dt.PluginError, match=r"get_capability_interface\(RUNTIME\) returned None"):
        network.add_plugin_v3([network.get_input(0)], [], _NoRuntime())


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda n: ([None], [], ScalePlugin()), dt.UsageError, r"add_plugin_v3: 'inputs\[0\]' is None"),
        (lambda n: (n.get_input(0), [], ScalePlugin()), dt.UsageError, "'inputs' is no list of tensors"),
        (lambda n: ([n.get_input(0)], None, ScalePlugin()), dt.UsageError, "'shape_inputs' is no list of tensors"),
        (lambda n: ([n.get_input(0)], [n.get_input(0)], ScalePlugin()), dt.UsageError, "no integer tensor; expected"),
        (lambda n: ([n.get_input(0)], [], object()), dt.PluginError, "the object is not an IPluginV3"),
        (lambda n: ([n.get_input(0)], [], None), dt.PluginError, "the object is not an IPluginV3"),
    ],
)
def test_wrong_arguments(network: Network, make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        network.add_plugin_v3(*make(network))
    assert network.num_layers == 0


def test_an_exception_of_the_plugin_names_it(network: Network) -> None:
    class Raises(ScalePlugin):
        def get_output_data_types(self, input_types: Any) -> Any:
            raise ValueError("only doubles")

    with pytest.raises(dt.PluginError, match="get_output_data_types raised ValueError: only doubles"):
        network.add_plugin_v3([network.get_input(0)], [], Raises())


def test_v2_plugins_are_sent_elsewhere(network: Network) -> None:
    with pytest.raises(
        dt.UnsupportedOpError, match="V2 plugins are not part of this API; got int\n  fix: use the tensor"
    ):
        network.add_plugin_v2([network.get_input(0)], 3)


def test_add_plugin_takes_what_gives_three_things(network: Network) -> None:
    layer = network.add_plugin(([network.get_input(0)], [], ScalePlugin()))
    assert layer.type == dt.LayerType.PLUGIN_V3
    with pytest.raises(dt.UsageError, match=r"expected \(inputs, shape_inputs, plugin\), got int"):
        network.add_plugin(lambda: 3)
    with pytest.raises(dt.UnsupportedOpError, match="compiled ahead of time"):
        network.add_plugin(([network.get_input(0)], [], ScalePlugin()), aot=True)
