"""Rule 1.2: which object is asked what, and when: in the network, the build, on loading, in contexts and in runs."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
import pytest

import dovetail as trt
from tests.conformance.contract.authors import (
    LINEAR,
    Messages,
    Plus,
    PlusCreator,
    build,
    details,
    load,
    methods,
    one_plugin,
    run_bound,
)

X = np.arange(6, dtype=np.float32).reshape(2, 3)
HW = (2, 3, 4, 4)


def _folded(names: list[str]) -> list[str]:
    return [name for name, _ in groupby(names)]


class Tuned(Plus):
    """Two formats, two tactics each."""

    formats = (LINEAR, trt.TensorFormat.CHW32)
    tactics = (1, 2)


# A. the network


def test_a_adding_asks_the_users_object_then_clones_it() -> None:
    trace: list[Any] = []
    network = trt.Builder(Messages()).create_network()
    x = network.add_input("x", trt.float32, (2, 3))
    plugin = Plus(1.0, trace)
    layer = network.add_plugin_v3(inputs=[x], shape_inputs=[], plugin=plugin)
    mine = [method for number, method, _ in trace if number == plugin.number]
    assert _folded(mine) == ["get_capability_interface", "get_output_data_types", "clone"]
    assert layer.plugin is not plugin
    assert layer.type == trt.LayerType.PLUGIN_V3


def test_a_the_users_object_is_not_used_afterwards() -> None:
    trace: list[Any] = []
    plugin = Plus(1.0, trace)
    marker: list[int] = []

    def fill(network: Any) -> Any:
        tensor = one_plugin(plugin)(network)
        marker.append(len(trace))
        return tensor

    build(fill)
    assert plugin.number not in {number for number, _, _ in trace[marker[0] :]}


def test_a_changes_to_the_users_object_after_adding_do_not_count() -> None:
    plugin = Plus(3.0)

    def fill(network: Any) -> Any:
        tensor = one_plugin(plugin)(network)
        plugin.addend = 100.0
        return tensor

    np.testing.assert_array_equal(load(build(fill), PlusCreator())(X), X + 3)


def test_a_reading_type_and_shape_asks_the_networks_clone() -> None:
    trace: list[Any] = []
    network = trt.Builder(Messages()).create_network()
    layer = network.add_plugin_v3([network.add_input("x", trt.float16, (-1, 3))], [], Plus(1.0, trace))
    del trace[:]
    assert layer.get_output(0).dtype == trt.float16
    assert layer.get_output(0).shape == (-1, 3)
    assert {method for _, method, _ in trace} >= {"get_output_data_types", "get_output_shapes"}
    assert {number for number, _, _ in trace} == {layer.plugin.number}


def test_a_default_names() -> None:
    network = trt.Builder(Messages()).create_network()
    x = network.add_input("x", trt.float32, (2, 3))
    layer = network.add_plugin_v3([x], [], Plus())
    assert layer.name == "(Unnamed Layer* 0) [PluginV3_V3ONE]"
    assert layer.get_output(0).name == "(Unnamed Layer* 0) [PluginV3_V3ONE]_output"


# B. the build


def test_b_each_trial_is_attached_configured_asked_for_tactics_then_run() -> None:
    trace: list[Any] = []
    build(one_plugin(Tuned(1.0, trace), HW))
    for number in {number for number, method, _ in trace if method == "enqueue"}:
        mine = _folded([m for n, m, _ in trace if n == number and m != "get_capability_interface"])
        assert mine.index("configure_plugin") == 0
        timed = [m for m in mine[1:] if m not in ("get_valid_tactics", "destroy")]
        assert timed[:4] == ["set_tactic", "get_workspace_size", "on_shape_change", "enqueue"]
        # The rest is one more run over new memory, to compare results.
        assert timed[4:] == ["on_shape_change", "enqueue"]
    assert len(details(trace, "get_valid_tactics")) == 2  # once for each combination


def test_b_each_object_runs_one_tactic_over_one_combination() -> None:
    trace: list[Any] = []
    build(one_plugin(Tuned(1.0, trace), HW))
    tried = {(n, d[0]) for n, method, d in trace if method == "enqueue"}
    assert len(tried) == len({n for n, _ in tried}) == 4
    configured = {n: d[0][0].desc.format for n, method, d in trace if method == "configure_plugin"}
    assert {(configured[n], t) for n, t in tried} == {(f, t) for f in Tuned.formats for t in (1, 2)}


def test_b_a_single_candidate_runs_once_and_is_not_timed() -> None:
    trace: list[Any] = []
    build(one_plugin(Plus(1.0, trace)))
    assert [method for _, method, _ in methods(trace, "enqueue", "on_shape_change")] == ["on_shape_change", "enqueue"]
    assert set(details(trace, "set_tactic")) == {0}


def test_b_one_custom_tactic_in_one_format_runs_once_too() -> None:
    class One(Plus):
        tactics = (9,)

    trace: list[Any] = []
    build(one_plugin(One(1.0, trace)))
    assert [method for _, method, _ in methods(trace, "enqueue", "on_shape_change")] == ["on_shape_change", "enqueue"]
    assert set(details(trace, "set_tactic")) == {9}


def test_b_enumeration_comes_before_and_again_after_the_timing_cache_id() -> None:
    class Cached(Plus):
        @property
        def timing_cache_id(self) -> str:  # type: ignore[override]
            self.note("timing_cache_id")
            return ""

        @timing_cache_id.setter
        def timing_cache_id(self, value: str) -> None:
            raise AssertionError

    trace: list[Any] = []
    build(one_plugin(Cached(1.0, trace)))
    order = _folded([m for _, m, _ in methods(trace, "supports_format_combination", "timing_cache_id")])
    assert order == ["supports_format_combination", "timing_cache_id", "supports_format_combination"]


def test_b_shapes_while_timing_are_the_opt_ones() -> None:
    trace: list[Any] = []
    build(
        one_plugin(Tuned(1.0, trace), (-1, 3, 4, 4)),
        profiles=[{"x": ((1, 3, 4, 4), (2, 3, 4, 4), (8, 3, 4, 4))}],
    )
    assert {tuple(d[0][0].dims) for d in details(trace, "on_shape_change")} == {(2, 3, 4, 4)}
    assert {tuple(d[1][0]) for d in details(trace, "enqueue")} == {(2, 3, 4, 4)}


def test_b_a_second_identical_layer_is_a_cache_hit() -> None:
    class Cached(Tuned):
        timing_cache_id = "same"

    trace: list[Any] = []
    plugin = Cached(1.0, trace)

    def fill(network: Any) -> Any:
        x = network.add_input("x", trt.float32, HW)
        first = network.add_plugin_v3([x], [], plugin).get_output(0)
        return network.add_plugin_v3([first], [], plugin).get_output(0)

    build(fill)
    # The first layer's four trials, and one run of the second layer.
    assert len({n for n, m, _ in trace if m == "enqueue"}) == 5
    assert len(details(trace, "get_valid_tactics")) == 4  # but both layers are asked


def test_b_without_an_id_identical_layers_are_timed_twice() -> None:
    trace: list[Any] = []
    plugin = Tuned(1.0, trace)

    def fill(network: Any) -> Any:
        x = network.add_input("x", trt.float32, HW)
        first = network.add_plugin_v3([x], [], plugin).get_output(0)
        return network.add_plugin_v3([first], [], plugin).get_output(0)

    build(fill)
    assert len({n for n, m, _ in trace if m == "enqueue"}) == 8


def test_b_a_tactic_that_raises_is_skipped_and_logged() -> None:
    class Fragile(Plus):
        tactics = (1, 2)

        def compute(self, *args: Any) -> None:
            if self.tactic == 1:
                raise RuntimeError("tactic one is broken")
            super().compute(*args)

    logger, trace = Messages(), []
    engine = load(build(one_plugin(Fragile(1.0, trace)), logger=logger), PlusCreator(Fragile))
    assert "tactic one is broken" in logger.text()
    np.testing.assert_array_equal(engine(X), X + 1)


def test_b_when_every_tactic_raises_there_is_no_implementation() -> None:
    class Hopeless(Plus):
        tactics = (1, 2)

        def compute(self, *args: Any) -> None:
            raise RuntimeError("always")

    with pytest.raises(trt.BuildError, match=r"could not find any implementation[\s\S]*always"):
        build(one_plugin(Hopeless()))


def test_b_the_final_object_is_configured_set_asked_for_workspace_and_serialized() -> None:
    trace: list[Any] = []
    build(one_plugin(Tuned(1.0, trace), HW))
    final = next(n for n, m, _ in reversed(trace) if m == "get_fields_to_serialize")
    mine = [m for n, m, _ in trace if n == final and m not in ("get_capability_interface", "destroy")]
    assert _folded(mine) == ["configure_plugin", "set_tactic", "get_workspace_size", "get_fields_to_serialize"]


def test_b_each_profile_is_built_on_an_object_of_its_own() -> None:
    trace: list[Any] = []
    build(
        one_plugin(Plus(1.0, trace), (-1, 3)),
        profiles=[{"x": ((1, 3), (2, 3), (4, 3))}, {"x": ((5, 3), (6, 3), (9, 3))}],
    )
    by_object: dict[int, set[Any]] = {}
    for number, method, detail in trace:
        if method == "configure_plugin":
            by_object.setdefault(number, set()).add(tuple(detail[0][0].max))
    assert {frozenset(bounds) for bounds in by_object.values()} == {frozenset({(4, 3)}), frozenset({(9, 3)})}
    enumerating = {n for n, m, _ in trace if m == "supports_format_combination"}
    assert len(enumerating) == 2


def test_b_aliases_are_queried_with_and_without_the_preview_feature() -> None:
    class InPlace(Plus, trt.IPluginV3OneBuildV2):
        def get_aliased_input(self, output_index: int) -> int:
            self.note("get_aliased_input", output_index)
            return -1

    trace: list[Any] = []
    build(one_plugin(InPlace(1.0, trace)))
    assert details(trace, "get_aliased_input") == [0]  # an alias without the feature must fail the build
    trace.clear()
    build(
        one_plugin(InPlace(1.0, trace)),
        configure=lambda c: c.set_preview_feature(trt.PreviewFeature.ALIASED_PLUGIN_IO_10_03, True),
    )
    assert details(trace, "get_aliased_input") == [0]


def test_b_one_network_can_be_built_again() -> None:
    builder = trt.Builder(Messages())
    network = builder.create_network()
    [y] = one_plugin(Plus(2.0))(network)
    network.mark_output(y)
    for _ in range(2):
        plan = builder.build_serialized_network(network, builder.create_builder_config())
        np.testing.assert_array_equal(load(plan, PlusCreator())(X), X + 2)


# C. loading


def test_c_the_creator_gets_the_serialized_fields_and_the_runtime_phase() -> None:
    trace: list[Any] = []
    creator = PlusCreator(Plus, trace)
    load(build(one_plugin(Plus(4.0))), creator)
    [(name, fields, phase, _)] = creator.created
    assert isinstance(name, str)
    assert phase == trt.TensorRTPhase.RUNTIME
    assert [(f.name, f.type, f.size, f.data[0]) for f in fields] == [("addend", trt.PluginFieldType.FLOAT32, 1, 4.0)]
    assert details(trace, "set_tactic") == [0]


def test_c_set_tactic_gets_the_chosen_tactic_once_and_never_on_attached_objects() -> None:
    class Lone(Plus):
        tactics = (42,)

    trace: list[Any] = []
    creator = PlusCreator(Lone, trace)
    engine = load(build(one_plugin(Lone())), creator)
    assert details(trace, "set_tactic") == [42]
    engine(X)
    assert details(trace, "set_tactic") == [42]
    assert {d[0] for d in details(trace, "enqueue")} == {42}  # carried by clone


def test_c_a_missing_creator_lists_what_is_registered() -> None:
    runtime = trt.Runtime(Messages())
    other = PlusCreator()
    other.name = "Plux"
    runtime.get_plugin_registry().register_creator(other)
    with pytest.raises(trt.PluginError, match=r"no creator is registered for plugin 'Plus' version '1'[\s\S]*Plux"):
        runtime.deserialize_cuda_engine(build(one_plugin(Plus())))


def test_c_the_runtimes_registry_wins_over_the_global_one() -> None:
    class Global(Plus):
        pass

    mine, everybodys = PlusCreator(), PlusCreator(Global)
    plan = build(one_plugin(Plus()))
    trt.get_plugin_registry().register_creator(everybodys, "")
    try:
        load(plan, mine)
        assert (len(mine.created), len(everybodys.created)) == (1, 0)
        load(plan)
        assert len(everybodys.created) == 1
    finally:
        assert trt.get_plugin_registry().deregister_creator(everybodys)


@pytest.mark.parametrize("result", [None, "raise"])
def test_c_a_creator_that_fails_is_named(result: Any) -> None:
    class Failing(PlusCreator):
        def create_plugin(self, name: str, fc: Any, phase: Any) -> Any:
            if result == "raise":
                raise ValueError("no such field")
            return None

    with pytest.raises(
        trt.PluginError, match=r"Plus.*(returned None|no such field)|(returned None|no such field).*Plus"
    ):
        load(build(one_plugin(Plus())), Failing())


# D. contexts


def test_d_attach_gives_a_new_object_with_the_contexts_resources() -> None:
    trace: list[Any] = []
    engine = load(build(one_plugin(Plus())), PlusCreator(Plus, trace))
    context = engine.create_execution_context()
    [resources] = details(trace, "attach_to_context")
    assert isinstance(resources, trt.IPluginResourceContext)
    address = resources.gpu_allocator.allocate(1024, 256, 0)
    assert address
    assert address % 256 == 0
    assert resources.gpu_allocator.deallocate(address)
    resources.error_recorder.report_error(trt.ErrorCode.INVALID_STATE, "from a plugin")
    assert context.error_recorder.get_error_desc(0) == "from a plugin"


def test_d_attach_that_returns_nothing_fails() -> None:
    class Loose(Plus):
        def attach_to_context(self, context: Any) -> Any:
            return None

    with pytest.raises(trt.PluginError, match="attach_to_context returned None"):
        load(build(one_plugin(Plus())), PlusCreator(Loose)).create_execution_context()


def test_d_a_context_releases_its_object_through_destroy() -> None:
    trace: list[Any] = []
    engine = load(build(one_plugin(Plus())), PlusCreator(Plus, trace))
    context = engine.create_execution_context()
    attached = [n for n, m, _ in trace if m == "get_capability_interface"][-1]
    assert not details(trace, "destroy")
    del context
    import gc

    gc.collect()
    assert [n for n, m, _ in trace if m == "destroy"] == [attached]


# E. runs


def test_e_shapes_are_told_before_the_first_run_and_after_changes_only() -> None:
    trace: list[Any] = []
    plan = build(one_plugin(Plus(), (-1, 3)), profiles=[{"x": ((1, 3), (2, 3), (4, 3))}])
    engine = load(plan, PlusCreator(Plus, trace))
    context = engine.create_execution_context()
    told = lambda: [tuple(d[0][0].dims) for d in details(trace, "on_shape_change")]  # noqa: E731
    run_bound(engine, {"x": np.zeros((2, 3), np.float32)}, context)
    assert told() == [(2, 3)]
    context.execute_async_v3(0)
    assert told() == [(2, 3)]
    run_bound(engine, {"x": np.zeros((4, 3), np.float32)}, context)
    assert told()[1:] == [(4, 3)]
    elsewhere = np.zeros((4, 3), np.float32)
    context.set_tensor_address("x", elsewhere.ctypes.data)
    context.execute_async_v3(0)
    assert told()[2:] == [(4, 3)]


def test_e_a_change_of_profile_uses_its_own_object_and_tells_it_shapes() -> None:
    trace: list[Any] = []
    plan = build(
        one_plugin(Plus(), (-1, 3)), profiles=[{"x": ((1, 3), (2, 3), (4, 3))}, {"x": ((5, 3), (6, 3), (9, 3))}]
    )
    engine = load(plan, PlusCreator(Plus, trace))
    context = engine.create_execution_context()
    for profile, rows in ((0, 2), (1, 6), (0, 2)):
        assert context.set_optimization_profile_async(profile, 0)
        x = np.ones((rows, 3), np.float32)
        np.testing.assert_array_equal(run_bound(engine, {"x": x}, context)["y0"], x + 1)
    users = [n for n, m, _ in trace if m == "enqueue"]
    assert users[0] == users[2] != users[1]
    assert [tuple(d[0][0].dims) for d in details(trace, "on_shape_change")] == [(2, 3), (6, 3), (2, 3)]


def test_e_enqueue_gets_ints_and_the_callers_addresses_and_stream() -> None:
    got: list[Any] = []

    class Spy(Plus):
        def enqueue(
            self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: Any, stream: Any
        ) -> None:
            got.append((inputs, outputs, workspace, stream))
            super().enqueue(input_desc, output_desc, inputs, outputs, workspace, stream)

    engine = load(build(one_plugin(Plus())), PlusCreator(Spy))
    context = engine.create_execution_context()
    x, y = X.copy(), np.zeros_like(X)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address("y0", y.ctypes.data)
    context.execute_async_v3(stream_handle=1234)
    [(inputs, outputs, workspace, stream)] = got
    assert inputs == [x.ctypes.data]
    assert outputs == [y.ctypes.data]
    assert all(type(value) is int for value in (*inputs, *outputs, workspace, stream))
    assert stream == 1234
    np.testing.assert_array_equal(y, x + 1)


def test_e_a_run_that_fails_says_so_and_leaves_outputs_alone_and_the_context_usable() -> None:
    class Moody(Plus):
        def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
            from dovetail.plugin import as_array

            if as_array(inputs[0], input_desc[0])[0, 0] < 0:
                raise ValueError("negative input")
            super().compute(input_desc, output_desc, inputs, outputs)

    engine = load(build(one_plugin(Plus())), PlusCreator(Moody))
    context = engine.create_execution_context()
    x, y = np.full((2, 3), -1, np.float32), np.full((2, 3), 77, np.float32)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address("y0", y.ctypes.data)
    with pytest.raises(trt.PluginError, match=r"Plus[\s\S]*enqueue raised ValueError: negative input"):
        context.execute_async_v3(0)
    assert (y == 77).all()
    x[...] = 1
    assert context.execute_async_v3(0)
    assert (y == 2).all()


def test_e_a_status_of_enqueue_that_is_not_0_fails_the_run() -> None:
    class Failing(Plus):
        def enqueue(self, *args: Any) -> Any:
            return -1

    engine = load(build(one_plugin(Plus())), PlusCreator(Failing))
    with pytest.raises(trt.PluginError, match="enqueue returned status -1"):
        engine(X)


def test_e_execute_v2_takes_one_address_for_each_tensor() -> None:
    engine = load(build(one_plugin(Plus())), PlusCreator())
    context = engine.create_execution_context()
    x, y = X.copy(), np.zeros_like(X)
    assert context.execute_v2([x.ctypes.data, y.ctypes.data])
    np.testing.assert_array_equal(y, X + 1)
