"""Memory that plugins and callers are given is what descriptors and bounds say, whatever the plan says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail as dt
from dovetail.plugin import as_array
from dovetail.plugin.arrays import address_of
from tests.support.attack_plans import InPlacePlugin, target
from tests.support.dynamic_plugins import PositivePlugin
from tests.support.plugins import PlainCreator, ScalePlugin


def _load(network: Any, builder: Any, *creators: Any, configure: Any = None) -> Any:
    config = builder.create_builder_config()
    config.providers = ["cpu"]  # where a step is a kernel
    if configure is not None:
        configure(config)
    runtime = dt.Runtime()
    for creator in creators:
        runtime.get_plugin_registry().register_creator(creator, "")
    return runtime.deserialize_cuda_engine(builder.build_serialized_network(network, config))


def test_a_plugin_sees_the_shape_of_a_constant() -> None:
    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input("x", dt.float32, (2, 3))
    constant = network.add_constant((2, 3), np.arange(6, dtype=np.float32).reshape(2, 3)).get_output(0)
    scaled = network.add_plugin_v3([constant], [], ScalePlugin(2.0)).get_output(0)
    network.mark_output(network.add_elementwise(x, scaled, dt.ElementWiseOperation.SUM).get_output(0))
    calls: list[Any] = []
    engine = _load(network, builder, PlainCreator("TestScale", lambda factor: ScalePlugin(factor, calls)))
    result = engine(np.zeros((2, 3), np.float32))
    assert [tuple(desc.dims) for name, told in calls if name == "on_shape_change" for desc in told] == [(2, 3), (2, 3)]
    np.testing.assert_array_equal(result, np.arange(6, dtype=np.float32).reshape(2, 3) * 2)


def test_a_plugin_in_place_changes_no_input_that_is_not_an_output_too() -> None:
    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input("x", dt.float32, (2, 3))
    changed = network.add_plugin_v3([x], [], InPlacePlugin(5.0)).get_output(0)
    network.mark_output(network.add_unary(changed, dt.UnaryOperation.NEG).get_output(0))
    feature = dt.PreviewFeature.ALIASED_PLUGIN_IO_10_03
    engine = _load(
        network,
        builder,
        PlainCreator("TestInPlace", InPlacePlugin),
        configure=lambda config: config.set_preview_feature(feature, True),
    )
    arrays = [np.full((2, 3), number, np.float32) for number in (1, 2, 3)]
    for array in arrays:
        np.testing.assert_allclose(engine(array), -5 * array)
    assert [float(array[0, 0]) for array in arrays] == [1, 2, 3]


def test_shapes_can_be_asked_for_before_integer_inputs_are_bound() -> None:
    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input("x", dt.int64, (2,))
    total = network.add_elementwise(x, x, dt.ElementWiseOperation.SUM).get_output(0)
    total.name = "y"
    network.mark_output(total)
    context = _load(network, builder).create_execution_context()
    assert context.infer_shapes() == []
    assert tuple(context.get_tensor_shape("y")) == (2,)


def test_a_view_of_the_plugins_own_shape_fits_the_memory() -> None:
    class Greedy(PositivePlugin):
        def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, *rest: Any) -> None:
            as_array(outputs[1], output_desc[1])[...] = 1
            as_array(outputs[0], output_desc[0], shape=(input_desc[0].dims[0] + 1,))[...] = 0

    plan = target("sizes")
    runtime = dt.Runtime()
    for creator in (PlainCreator("TestPositive", Greedy), PlainCreator("TestScale", ScalePlugin)):
        runtime.get_plugin_registry().register_creator(creator, "")
    engine = runtime.deserialize_cuda_engine(plan.raw)
    with pytest.raises(dt.PluginError, match="larger than the memory"):
        engine(*plan.arrays())


def test_a_smaller_bound_in_the_plan_is_noticed_by_the_plugins_view() -> None:
    plan = target("sizes")
    runtime, _ = plan.runtime()
    raw = plan.changed(lambda m: m["programs"][0]["steps"][0].update(sizes={"step0_size1": 1}))
    with pytest.raises(dt.PluginError, match="larger than the memory"):
        runtime.deserialize_cuda_engine(raw)(*plan.arrays())


def test_memory_bound_by_address_is_not_written_beyond_its_bound() -> None:
    plan = target("sizes")
    runtime, _ = plan.runtime()
    raw = plan.changed(lambda m: m["outputs"][2].update(max_dims=[1]))
    context = runtime.deserialize_cuda_engine(raw).create_execution_context()
    x = plan.arrays()[0]
    buffers = {"x": x, "y": np.zeros(9, np.float32), "w": np.zeros(9, np.float32), "count": np.zeros((), np.int64)}
    context.set_input_shape("x", x.shape)
    for name, buffer in buffers.items():
        context.set_tensor_address(name, address_of(buffer))
    assert context.get_max_output_size("w") == 4
    with pytest.raises(dt.InputError, match="over its bound"):
        context.execute_async_v3(0)
    assert not buffers["w"].any()


def test_a_result_without_a_bound_needs_an_allocator() -> None:
    plan = target("sizes")
    runtime, _ = plan.runtime()
    raw = plan.changed(lambda m: m["outputs"][2].pop("max_dims"))
    context = runtime.deserialize_cuda_engine(raw).create_execution_context()
    x = plan.arrays()[0]
    buffers = {"x": x, "y": np.zeros(9, np.float32), "w": np.zeros(9, np.float32), "count": np.zeros((), np.int64)}
    context.set_input_shape("x", x.shape)
    for name, buffer in buffers.items():
        context.set_tensor_address(name, address_of(buffer))
    with pytest.raises(dt.InputError, match="no memory is large enough"):
        context.execute_async_v3(0)


def test_an_output_of_another_type_than_the_plan_says_is_an_error() -> None:
    plan = target("sizes")
    runtime, _ = plan.runtime()

    def edit(manifest: Any) -> None:
        manifest["outputs"][2]["dtype"] = manifest["programs"][0]["values"][4]["dtype"] = "int8"

    engine = runtime.deserialize_cuda_engine(plan.changed(edit))
    with pytest.raises(dt.PlanError, match="another type than the plan says"):
        engine(*plan.arrays())


def test_a_plugin_input_of_another_type_than_the_plan_says_is_an_error() -> None:
    plan = target("sizes")
    runtime, _ = plan.runtime()

    def edit(manifest: Any) -> None:
        """Say that what the kernel negates is read by another plugin, as something else."""
        program = manifest["programs"][0]
        kernel, plugin = program["steps"][2], program["steps"][1]
        program["values"][4]["dtype"] = "int64"
        kernel.update(inputs=[1], outputs=[4])
        plugin.update(inputs=[4], outputs=[3])
        program["steps"] = [program["steps"][0], kernel, plugin]
        program["symbols"][3]["value"] = 4
        program["outputs"] = [1, 2, 3]

    engine = runtime.deserialize_cuda_engine(plan.changed(edit))
    with pytest.raises(dt.PlanError, match="another type or shape than the plan says"):
        engine(*plan.arrays())


def test_a_kernel_with_fewer_results_than_the_plan_says_is_an_error() -> None:
    plan = target("open")
    runtime, _ = plan.runtime()

    def edit(manifest: Any) -> None:
        program = manifest["programs"][0]
        program["values"].append({"name": "more", "dtype": "float32", "kind": "dynamic"})
        program["steps"][-1]["outputs"].append(8)

    engine = runtime.deserialize_cuda_engine(plan.changed(edit))
    with pytest.raises(dt.PlanError, match="fewer results than the plan says"):
        engine(*plan.arrays())
