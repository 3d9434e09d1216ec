"""Rule 1.4: what each method of a plugin must and may do, and what happens when it does not."""

# ruff: noqa: N803 - the contract's names

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import dovetail as trt
from dovetail.plugin import as_array
from tests.conformance.contract.authors import (
    LINEAR,
    Messages,
    Plus,
    PlusCreator,
    build,
    details,
    load,
    one_plugin,
    run_bound,
)

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def _breaking(method: str, result: Any) -> type[Plus]:
    """Plus with one method that returns something else, or raises."""

    def broken(self: Any, *args: Any) -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    return type("Broken", (Plus,), {method: broken})


# num_outputs, get_output_data_types


@pytest.mark.parametrize("count", [0, -1, "1", None, 1.5])
def test_num_outputs_is_positive(count: Any) -> None:
    plugin = Plus()
    plugin.num_outputs = count
    with pytest.raises(trt.PluginError, match="num_outputs"):
        build(one_plugin(plugin))


def test_num_outputs_may_be_any_integer_type() -> None:
    plugin = Plus()
    plugin.num_outputs = np.int64(1)
    build(one_plugin(plugin))


class Many(Plus):
    """Three outputs of three types."""

    def __init__(self, addend: float = 1.0, trace: Any = None) -> None:
        super().__init__(addend, trace)
        self.num_outputs = 3

    def get_output_data_types(self, input_types: Any) -> Any:
        return (input_types[0], trt.float16, trt.DataType.INT32)

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        turned = trt.DimsExprs([inputs[0][1], inputs[0][0]])
        return [trt.DimsExprs(inputs[0]), turned, trt.DimsExprs([exprBuilder.constant(2)])]

    def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
        assert [d.type for d in output_desc] == [trt.float32, trt.float16, trt.int32]
        x = as_array(inputs[0], input_desc[0])
        same, turned, shape = (as_array(a, d) for a, d in zip(outputs, output_desc, strict=True))
        same[...], turned[...], shape[...] = x, x.T, x.shape


def test_several_outputs_of_several_types() -> None:
    engine = load(build(one_plugin(Many())), PlusCreator(Many))
    result = engine(X)
    assert [result[f"y{i}"].dtype for i in range(3)] == [np.float32, np.float16, np.int32]
    np.testing.assert_array_equal(result["y1"], X.T.astype(np.float16))
    np.testing.assert_array_equal(result["y2"], X.shape)


def test_outputs_nobody_uses_still_have_memory() -> None:
    def fill(network: Any) -> Any:
        return network.add_plugin_v3([network.add_input("x", trt.float32, (2, 3))], [], Many()).get_output(1)

    np.testing.assert_array_equal(load(build(fill), PlusCreator(Many))(X), X.T.astype(np.float16))


def test_an_output_of_the_network_may_also_be_used_inside() -> None:
    def fill(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (2, 3))
        a = network.add_plugin_v3([x], [], Plus(1.0)).get_output(0)
        b = network.add_plugin_v3([a], [], Plus(10.0)).get_output(0)
        return [a, b, network.add_elementwise(a, b, trt.ElementWiseOperation.SUM).get_output(0)]

    result = load(build(fill), PlusCreator())(X)
    np.testing.assert_array_equal(result["y0"], X + 1)
    np.testing.assert_array_equal(result["y1"], X + 11)
    np.testing.assert_array_equal(result["y2"], 2 * X + 12)


@pytest.mark.parametrize(
    "result",
    [[], [trt.float32] * 2, None, trt.float32, ["float32"], [None], [99], ValueError("no types")],
    ids=repr,
)
def test_bad_output_types_end_the_network(result: Any) -> None:
    with pytest.raises(trt.PluginError, match="get_output_data_types"):
        build(one_plugin(_breaking("get_output_data_types", result)()))


def test_a_plugin_without_inputs() -> None:
    class Source(Plus):
        def get_output_data_types(self, input_types: Any) -> Any:
            assert list(input_types) == []
            return [trt.float32]

        def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
            assert (len(inputs), len(shape_inputs)) == (0, 0)
            return [trt.DimsExprs([exprBuilder.constant(2), exprBuilder.constant(3)])]

        def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
            assert (pos, num_inputs, len(in_out)) == (0, 0, 1)
            return in_out[0].desc.type == trt.float32 and in_out[0].desc.format == LINEAR

        def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: Any, stream: Any) -> None:
            assert (len(input_desc), len(inputs)) == (0, 0)
            as_array(outputs[0], output_desc[0])[...] = self.addend

    def alone(network: Any) -> Any:
        return network.add_plugin_v3([], [], Source(4.0)).get_output(0)

    def added(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (2, 3))
        return network.add_elementwise(x, alone(network), trt.ElementWiseOperation.SUM).get_output(0)

    np.testing.assert_array_equal(load(build(alone), PlusCreator(Source))(), np.full((2, 3), 4, np.float32))
    np.testing.assert_array_equal(load(build(added), PlusCreator(Source))(X), X + 4)


# get_output_shapes


@pytest.mark.parametrize("result", [[], None, [None], [(2, 3)], [[2, 3]], ValueError("no shape")], ids=repr)
def test_bad_output_shapes_end_the_build(result: Any) -> None:
    with pytest.raises(trt.PluginError, match="get_output_shapes"):
        build(one_plugin(_breaking("get_output_shapes", result)()))


def test_expressions_may_outlive_the_call_and_mix_between_builders() -> None:
    kept: list[Any] = []

    class Hoarder(Plus):
        def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
            kept.append(exprBuilder.constant(3))
            return [trt.DimsExprs([inputs[0][0], kept[0]])]

    np.testing.assert_array_equal(load(build(one_plugin(Hoarder())), PlusCreator(Hoarder))(X), X + 1)
    assert len(kept) >= 3


# shape inputs


class Filled(Plus):
    """A tensor of the shape that all shape inputs say together, filled with the addend."""

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        self.note("shape_inputs", [len(dims) for dims in shape_inputs])
        return [trt.DimsExprs([value for dims in shape_inputs for value in dims])]

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        assert (num_inputs, len(in_out)) == (1, 2)
        return bool(in_out[pos].desc.format == LINEAR)

    def configure_plugin(self, inp: Any, out: Any) -> None:
        assert (len(inp), len(out)) == (1, 1)
        super().configure_plugin(inp, out)

    def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
        assert (len(input_desc), len(inputs)) == (1, 1)
        as_array(outputs[0], output_desc[0])[...] = self.addend


def test_a_constant_shape_input() -> None:
    def fill(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (2, 3))
        shape = network.add_constant((2,), np.array([4, 5], np.int64)).get_output(0)
        return network.add_plugin_v3([x], [shape], Filled(7.0)).get_output(0)

    trace: list[Any] = []
    assert load(build(fill), PlusCreator(Filled, trace))(X).shape == (4, 5)


def test_a_matrix_as_shape_input_is_flattened() -> None:
    trace: list[Any] = []

    def fill(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (2, 3))
        shape = network.add_constant((2, 3), np.array([[1, 2, 1], [3, 1, 1]], np.int32)).get_output(0)
        return network.add_plugin_v3([x], [shape], Filled(7.0, trace)).get_output(0)

    assert load(build(fill), PlusCreator(Filled))(X).shape == (1, 2, 1, 3, 1, 1)
    assert all(counts == [6] for counts in details(trace, "shape_inputs"))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("form", [(2,), (1, 2)])
def test_a_shape_input_of_the_network(dtype: Any, form: tuple[int, ...]) -> None:
    trace: list[Any] = []

    def fill(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (2, 3))
        s = network.add_input("s", trt.int32 if dtype is np.int32 else trt.int64, form)
        return network.add_plugin_v3([x], [s], Filled(7.0, trace)).get_output(0)

    def bounds(config: Any) -> None:
        profile = trt.OptimizationProfile()
        profile.set_shape_input("s", (1, 1), (2, 3), (8, 9))
        config.add_optimization_profile(profile)

    engine = load(build(fill, configure=bounds), PlusCreator(Filled))
    for shape in ((2, 3), (8, 9), (1, 4)):
        y = engine(X, np.array(shape, dtype).reshape(form))
        assert y.shape == shape
        assert (y == 7).all()
    if len(form) == 1:
        out = details(trace, "configure_plugin")[0][1][0]
        assert (tuple(out.desc.dims), tuple(out.min), tuple(out.opt), tuple(out.max)) == (
            (-1, -1),
            (1, 1),
            (2, 3),
            (8, 9),
        )


def test_a_scalar_shape_input_and_several() -> None:
    def fill(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (-1, 3))
        rows = network.add_constant((), np.array(2, np.int32)).get_output(0)
        computed = network.add_shape(x).get_output(0)
        return network.add_plugin_v3([x], [rows, computed], Filled(7.0)).get_output(0)

    engine = load(build(fill, profiles=[{"x": ((1, 3), (2, 3), (4, 3))}]), PlusCreator(Filled))
    assert engine(np.zeros((4, 3), np.float32)).shape == (2, 4, 3)


def test_shape_inputs_are_integers() -> None:
    def fill(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (2, 3))
        return network.add_plugin_v3([x], [x], Filled()).get_output(0)

    with pytest.raises(trt.UsageError, match="shape_inputs"):
        build(fill)


# configure_plugin


def test_configure_sees_wildcards_and_the_profiles_bounds_on_both_sides() -> None:
    class Doubling(Plus):
        def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
            two = exprBuilder.constant(2)
            rows = exprBuilder.operation(trt.DimensionOperation.PROD, inputs[0][0], two)
            return [trt.DimsExprs([rows, inputs[0][1]])]

        def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
            x = as_array(inputs[0], input_desc[0])
            as_array(outputs[0], output_desc[0])[...] = np.concatenate([x, x])

    trace: list[Any] = []
    plan = build(one_plugin(Doubling(1.0, trace), (-1, 3)), profiles=[{"x": ((1, 3), (2, 3), (8, 3))}])
    for inputs, outputs in details(trace, "configure_plugin"):
        [x], [y] = inputs, outputs
        assert (x.desc.dims, x.min, x.opt, x.max) == ((-1, 3), (1, 3), (2, 3), (8, 3))
        assert (y.desc.dims, y.min, y.opt, y.max) == ((-1, 3), (2, 3), (4, 3), (16, 3))
        assert (x.desc.type, x.desc.format, x.desc.scale) == (trt.float32, LINEAR, -1.0)
    assert load(plan, PlusCreator(Doubling))(X).shape == (4, 3)


def test_static_dims_have_no_wildcards() -> None:
    trace: list[Any] = []
    build(one_plugin(Plus(1.0, trace)))
    [x], _ = details(trace, "configure_plugin")[0]
    assert (x.desc.dims, x.min, x.opt, x.max) == ((2, 3),) * 4


def test_configure_is_not_called_at_run_time() -> None:
    trace: list[Any] = []
    engine = load(build(one_plugin(Plus())), PlusCreator(Plus, trace))
    engine(X)
    for method in ("configure_plugin", "get_output_shapes", "supports_format_combination", "get_valid_tactics"):
        assert not details(trace, method)


# what ends a build or a run: statuses other than 0, and exceptions


@pytest.mark.parametrize("method", ["configure_plugin", "set_tactic"])
@pytest.mark.parametrize("result", [-1, 3, RuntimeError("no")], ids=repr)
def test_failures_that_end_the_build(method: str, result: Any) -> None:
    with pytest.raises(trt.PluginError, match=rf"{method}[\s\S]*"):
        build(one_plugin(_breaking(method, result)()))


@pytest.mark.parametrize("method", ["clone", "attach_to_context", "get_fields_to_serialize", "get_valid_tactics"])
def test_exceptions_that_end_the_build_name_the_method_and_the_line(method: str) -> None:
    with pytest.raises(trt.PluginError, match=rf"{method} raised RuntimeError: oh no") as error:
        build(one_plugin(_breaking(method, RuntimeError("oh no"))()))
    assert "test_1_4_methods.py:" in str(error.value)
    assert "Plus" in str(error.value)


@pytest.mark.parametrize("method", ["set_tactic", "on_shape_change", "attach_to_context", "enqueue", "clone"])
def test_exceptions_at_run_time_name_the_method_and_the_line(method: str) -> None:
    plan = build(one_plugin(Plus()))
    with pytest.raises(trt.PluginError, match=r"raised RuntimeError: oh no") as error:
        load(plan, PlusCreator(_breaking(method, RuntimeError("oh no"))))(X)
    assert "test_1_4_methods.py:" in str(error.value)


def test_a_status_of_on_shape_change_ends_the_run() -> None:
    with pytest.raises(trt.PluginError, match="on_shape_change returned status 7"):
        load(build(one_plugin(Plus())), PlusCreator(_breaking("on_shape_change", 7)))(X)


def test_the_next_run_after_a_failed_shape_change_tells_the_shapes_again() -> None:
    class Once(Plus):
        def on_shape_change(self, inp: Any, out: Any) -> None:
            super().on_shape_change(inp, out)
            if len(details(self.trace, "on_shape_change")) == 1:
                raise RuntimeError("not yet")

    trace: list[Any] = []
    engine = load(build(one_plugin(Plus())), PlusCreator(Once, trace))
    with pytest.raises(trt.PluginError, match="not yet"):
        engine(X)
    np.testing.assert_array_equal(engine(X), X + 1)
    assert len(details(trace, "on_shape_change")) == 2


def test_errors_of_a_build_are_recorded() -> None:
    recorder = trt.ErrorRecorder()
    builder = trt.Builder(Messages())
    builder.error_recorder = recorder
    network = builder.create_network()
    [y] = one_plugin(_breaking("configure_plugin", 1)())(network)
    network.mark_output(y)
    with pytest.raises(trt.PluginError):
        builder.build_serialized_network(network, builder.create_builder_config())
    assert recorder.num_errors() == 1
    assert "configure_plugin" in recorder.get_error_desc(0)


def test_failing_output_types_reach_the_error_recorder() -> None:
    recorder = trt.ErrorRecorder()
    builder = trt.Builder(Messages())
    builder.error_recorder = recorder
    network = builder.create_network()
    with pytest.raises(trt.PluginError):
        one_plugin(_breaking("get_output_data_types", ValueError("no types"))())(network)
    assert "get_output_data_types" in recorder.get_error_desc(0)


def test_a_destroy_that_raises_is_reported_and_stops_nothing(capfd: Any) -> None:
    class Stuck(Plus):
        def destroy(self) -> None:
            super().destroy()
            raise RuntimeError("cannot let go")

    logger, trace = Messages(), []
    plan = build(one_plugin(Stuck(1.0, trace)), logger=logger)
    assert "cannot let go" in logger.text() + capfd.readouterr().err
    engine = load(plan, PlusCreator(Stuck, trace))
    np.testing.assert_array_equal(engine(X), X + 1)
    engine.close()
    import gc

    del engine
    gc.collect()
    made = {n for n, m, _ in trace if m == "get_capability_interface"}
    assert len(made - {n for n, m, _ in trace if m == "destroy"}) == 1  # the user's own


# tactics


class Tactical(Plus):
    """Formats and tactics that depend on each other."""

    formats = (LINEAR, trt.TensorFormat.HWC)

    def configure_plugin(self, inp: Any, out: Any) -> None:
        super().configure_plugin(inp, out)
        self.configured = inp[0].desc.format

    def get_valid_tactics(self) -> Any:
        super().get_valid_tactics()
        return [1, 2] if self.configured == LINEAR else [5]

    def enqueue(self, input_desc: Any, *rest: Any) -> None:
        assert self.tactic in ([1, 2] if input_desc[0].format == LINEAR else [5])
        super().enqueue(input_desc, *rest)


def test_tactics_are_asked_for_the_combination_that_was_configured() -> None:
    trace: list[Any] = []
    plan = build(one_plugin(Tactical(1.0, trace), (1, 3, 2, 2)))
    assert {d[0] for d in details(trace, "enqueue")} == {1, 2, 5}
    x = np.ones((1, 3, 2, 2), np.float32)
    np.testing.assert_array_equal(load(plan, PlusCreator(Tactical))(x), x + 1)


@pytest.mark.parametrize("tactics", [[0], [1, 1], [-3], ["1"], None, [1.5]], ids=repr)
def test_tactics_are_unique_positive_integers(tactics: Any) -> None:
    with pytest.raises(trt.PluginError, match="get_valid_tactics"):
        build(one_plugin(_breaking("get_valid_tactics", tactics)()))


@pytest.mark.parametrize("tactics", [(1, 2), np.array([1, 2], np.int32), [np.int64(1), np.int64(2)], range(1, 3)])
def test_tactics_may_come_in_any_sequence_of_integers(tactics: Any) -> None:
    class Sequenced(Plus):
        def get_valid_tactics(self) -> Any:
            return tactics

        def set_tactic(self, tactic: int) -> None:
            assert type(tactic) is int
            super().set_tactic(tactic)

    trace: list[Any] = []
    build(one_plugin(Sequenced(1.0, trace)))
    assert set(details(trace, "set_tactic")) == {1, 2}


def test_the_fastest_tactic_is_chosen_and_stored() -> None:
    import time

    class Racing(Plus):
        tactics = (1, 2)

        def compute(self, *args: Any) -> None:
            if self.tactic == 1:
                time.sleep(0.002)
            super().compute(*args)

    trace: list[Any] = []
    load(build(one_plugin(Racing())), PlusCreator(Racing, trace))
    assert details(trace, "set_tactic") == [2]


# workspace


class Scratch(Plus):
    """Needs room for its input in the workspace."""

    def get_workspace_size(self, inp: Any, out: Any) -> int:
        super().get_workspace_size(inp, out)
        return 4 * int(np.prod(tuple(inp[0].max)))

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> None:
        self.note("workspace", workspace)
        x, copy = as_array(inputs[0], input_desc[0]), as_array(workspace, input_desc[0])
        copy[...] = x
        as_array(outputs[0], output_desc[0])[...] = copy + np.float32(self.addend)


def test_workspace_is_asked_for_the_maximum_and_suffices_for_every_shape() -> None:
    trace: list[Any] = []
    plan = build(one_plugin(Scratch(1.0, trace), (-1, 3)), profiles=[{"x": ((1, 3), (2, 3), (500, 3))}])
    assert {tuple(d[0][0].max) for d in details(trace, "get_workspace_size")} == {(500, 3)}
    engine = load(plan, PlusCreator(Scratch))
    for rows in (1, 500, 3):
        x = np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)
        np.testing.assert_array_equal(engine(x), x + 1)


def test_without_workspace_the_address_is_null() -> None:
    trace: list[Any] = []
    load(build(one_plugin(Plus())), PlusCreator(Plus, trace))(X)
    assert details(trace, "enqueue")[0][-1] == 0


def test_a_limit_on_workspace_refuses_what_needs_more() -> None:
    with pytest.raises(trt.BuildError, match="bytes of workspace"):
        build(
            one_plugin(Scratch(), (64, 64)),
            configure=lambda c: c.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1024),
        )


@pytest.mark.parametrize("result", [RuntimeError("no idea"), None, -1, "8", 2.5], ids=repr)
def test_a_workspace_that_cannot_be_told_counts_as_none_and_is_logged(result: Any) -> None:
    logger = Messages()
    broken = _breaking("get_workspace_size", result)
    plan = build(one_plugin(broken()), logger=logger)
    assert "get_workspace_size" in logger.text()
    trace: list[Any] = []
    np.testing.assert_array_equal(load(plan, PlusCreator(broken, trace))(X), X + 1)
    assert details(trace, "enqueue")[0][-1] == 0


def test_a_strict_build_takes_no_broken_workspace() -> None:
    def strict(config: Any) -> None:
        config.strict = True

    with pytest.raises(trt.PluginError, match="get_workspace_size"):
        build(one_plugin(_breaking("get_workspace_size", RuntimeError("no idea"))()), configure=strict)


def test_workspace_sizes_of_numpy_integers() -> None:
    class Numpy(Scratch):
        def get_workspace_size(self, inp: Any, out: Any) -> Any:
            return np.int64(super().get_workspace_size(inp, out))

    np.testing.assert_array_equal(load(build(one_plugin(Numpy())), PlusCreator(Numpy))(X), X + 1)


# timing cache


class Timed(Plus):
    tactics = (1, 2)


def _count_runs(cache_id: Any, cache: Any, addend: float = 1.0) -> int:
    trace: list[Any] = []
    plugin = Timed(addend, trace)
    if cache_id != "unset":
        plugin.timing_cache_id = cache_id

    def use(config: Any) -> None:
        assert config.set_timing_cache(cache, False)

    build(one_plugin(plugin), configure=use)
    return len(details(trace, "enqueue"))


@pytest.mark.parametrize("cache_id", ["", "addend=1"])
def test_an_id_lets_later_builds_skip_timing(cache_id: str) -> None:
    config = trt.Builder(Messages()).create_builder_config()
    cache = config.create_timing_cache(b"")
    assert _count_runs(cache_id, cache) > 0
    assert _count_runs(cache_id, cache) == 0
    again = config.create_timing_cache(bytes(cache.serialize()))
    assert _count_runs(cache_id, again) == 0
    assert _count_runs(cache_id + "other", again) > 0


@pytest.mark.parametrize("cache_id", [None, "unset"])
def test_without_an_id_every_build_times_again(cache_id: Any) -> None:
    cache = trt.BuilderConfig().create_timing_cache(b"")
    assert _count_runs(cache_id, cache) > 0
    assert _count_runs(cache_id, cache) > 0


def test_the_key_has_shapes_formats_and_the_plugins_identity() -> None:
    cache = trt.BuilderConfig().create_timing_cache(b"")
    _count_runs("mine", cache)
    keys = cache.queryKeys()
    assert len(keys) == 2
    assert all(part in keys[0] for part in ("Plus", "2x3", "FLOAT", "LINEAR", "mine"))


# metadata


def test_metadata_reaches_the_inspector() -> None:
    plugin = Plus()
    plugin.metadata_string = "addend is one"

    def detailed(config: Any) -> None:
        config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED

    engine = load(build(one_plugin(plugin), configure=detailed), PlusCreator())
    inspector = engine.create_engine_inspector()
    layers = json.loads(inspector.get_engine_information(trt.LayerInformationFormat.JSON))["Layers"]
    assert layers[0]["Metadata"] == "addend is one"
    assert "addend is one" in inspector.get_layer_information(0, trt.LayerInformationFormat.ONELINE)


# aliasing


class InPlace(Plus, trt.IPluginV3OneBuildV2):
    """x += addend."""

    def get_aliased_input(self, output_index: int) -> int:
        return 0

    def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
        assert inputs[0] == outputs[0]
        as_array(inputs[0], input_desc[0])[...] += self.addend


def _preview(config: Any) -> None:
    config.set_preview_feature(trt.PreviewFeature.ALIASED_PLUGIN_IO_10_03, True)


def test_an_aliased_output_has_the_address_of_its_input() -> None:
    engine = load(build(one_plugin(InPlace()), configure=_preview), PlusCreator(InPlace))
    assert engine.get_aliased_input_tensor("y0") == "x"
    context = engine.create_execution_context()
    x = X.copy()
    for name in ("x", "y0"):
        context.set_tensor_address(name, x.ctypes.data)
    for turn in (1, 2):
        context.execute_async_v3(0)
        np.testing.assert_array_equal(x, X + turn)


@pytest.mark.parametrize("index", [1, -2, 7])
def test_an_alias_names_an_input(index: int) -> None:
    class Wrong(InPlace):
        def get_aliased_input(self, output_index: int) -> int:
            return index

    with pytest.raises(trt.PluginError, match="get_aliased_input"):
        build(one_plugin(Wrong()), configure=_preview)


def test_an_input_is_aliased_at_most_once() -> None:
    class Greedy(Many, trt.IPluginV3OneBuildV2):
        def get_aliased_input(self, output_index: int) -> int:
            return 0

    with pytest.raises(trt.PluginError, match="get_aliased_input"):
        build(one_plugin(Greedy()), configure=_preview)


def test_the_first_build_class_is_never_asked_for_aliases() -> None:
    engine = load(build(one_plugin(Plus()), configure=_preview), PlusCreator())
    assert engine.get_aliased_input_tensor("y0") is None


# names


@pytest.mark.parametrize("attribute", ["plugin_name", "plugin_version", "plugin_namespace"])
@pytest.mark.parametrize("value", [None, 3, "x" * 1024])
def test_names_are_strings_of_at_most_1023_bytes(attribute: str, value: Any) -> None:
    plugin = Plus()
    setattr(plugin, attribute, value)
    with pytest.raises(trt.PluginError, match=attribute):
        build(one_plugin(plugin))


def test_long_names_are_fine() -> None:
    name = "n" * 1023
    plugin = Plus()
    plugin.plugin_name = name
    creator = PlusCreator()
    creator.name = name
    np.testing.assert_array_equal(load(build(one_plugin(plugin)), creator)(X), X + 1)


# places a plugin can be in


def test_one_object_added_twice_gives_two_layers() -> None:
    plugin = Plus(2.0)

    def fill(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (2, 3))
        first = network.add_plugin_v3([x], [], plugin)
        plugin.addend = 30.0
        second = network.add_plugin_v3([first.get_output(0)], [], plugin)
        assert first.plugin is not second.plugin
        return second.get_output(0)

    np.testing.assert_array_equal(load(build(fill), PlusCreator())(X), X + 32)


def test_one_tensor_as_two_inputs() -> None:
    class Adding(Plus):
        def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
            a, b = (as_array(p, d) for p, d in zip(inputs, input_desc, strict=True))
            as_array(outputs[0], output_desc[0])[...] = a + b

    def fill(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (2, 3))
        return network.add_plugin_v3([x, x], [], Adding()).get_output(0)

    np.testing.assert_array_equal(load(build(fill), PlusCreator(Adding))(X), 2 * X)


class ViaMemory(Plus):
    """y = x + addend, written in two steps so that sharing memory with x would show."""

    def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
        x, y = as_array(inputs[0], input_desc[0]), as_array(outputs[0], output_desc[0])
        y[...] = y.dtype.type(0)
        y[...] = (x + x.dtype.type(self.addend)).astype(y.dtype)


def _loop(network: Any, plugin: Any, dtype: Any = trt.float32) -> list[Any]:
    x = network.add_input("x", dtype, (4,))
    loop = network.add_loop()
    count = network.add_constant((), np.array(3, np.int32)).get_output(0)
    loop.add_trip_limit(count, trt.TripLimit.COUNT)
    state = loop.add_recurrence(x)
    y = network.add_plugin_v3([state.get_output(0)], [], plugin).get_output(0)
    state.set_input(1, y)
    last = loop.add_loop_output(state.get_output(0), trt.LoopOutput.LAST_VALUE)
    every = loop.add_loop_output(y, trt.LoopOutput.CONCATENATE, 0)
    every.set_input(1, count)
    return [last.get_output(0), every.get_output(0)]


@pytest.mark.parametrize("dtype", [trt.float32, trt.float16, trt.int8, trt.int4], ids=lambda d: d.name)
def test_in_the_body_of_a_loop(dtype: Any) -> None:
    trace: list[Any] = []

    class Typed(ViaMemory):
        def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
            if dtype != trt.int4:
                return super().compute(input_desc, output_desc, inputs, outputs)
            x, y = as_array(inputs[0], input_desc[0]), as_array(outputs[0], output_desc[0])
            y[...] = 0
            y[...] = x + np.uint8(0x11)  # two elements a byte, none of them overflows here
            return None

    engine = load(build(lambda n: _loop(n, Typed(), dtype)), PlusCreator(Typed, trace))
    x = np.arange(4).astype(dtype.numpy)
    for _ in range(2):
        result = engine(x)
        np.testing.assert_array_equal(result["y0"].astype(int), np.arange(4) + 3)
        np.testing.assert_array_equal(result["y1"].astype(int), [np.arange(4) + i for i in (1, 2, 3)])
    assert len(details(trace, "enqueue")) == 6
    assert len({n for n, m, _ in trace if m == "enqueue"}) == 1


def test_in_the_branches_of_a_conditional() -> None:
    trace: list[Any] = []

    def fill(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (2, 3))
        condition = network.add_input("c", trt.bool, ())
        chosen = network.add_if_conditional()
        chosen.set_condition(condition)
        inside = chosen.add_input(x).get_output(0)
        yes = network.add_plugin_v3([inside], [], Plus(1.0)).get_output(0)
        no = network.add_plugin_v3([inside], [], Plus(100.0)).get_output(0)
        return chosen.add_output(yes, no).get_output(0)

    engine = load(build(fill), PlusCreator(Plus, trace))
    np.testing.assert_array_equal(engine(X, np.array(True)), X + 1)
    np.testing.assert_array_equal(engine(X, np.array(False)), X + 100)
    assert len(details(trace, "enqueue")) == 2  # only the branch that is taken


# every type


@pytest.mark.parametrize("dtype", list(trt.DataType), ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(2, 3), (3,), ()])
def test_every_type_goes_through_a_plugin(dtype: Any, shape: tuple[int, ...]) -> None:
    class Copy(Plus):
        def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
            assert input_desc[0].type == output_desc[0].type == dtype
            as_array(outputs[0], output_desc[0])[...] = as_array(inputs[0], input_desc[0])

    engine = load(build(one_plugin(Copy(), shape, dtype)), PlusCreator(Copy))
    x = np.array([1, 0, 1, 1, 0, 1])[: max(int(np.prod(shape)), 1)].reshape(shape).astype(dtype.numpy)
    y = engine(x)
    assert y.dtype == x.dtype
    assert y.shape == shape
    assert y.tobytes() == x.tobytes()


def test_four_bit_memory_by_address_is_packed() -> None:
    class Copy(Plus):
        def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
            as_array(outputs[0], output_desc[0])[...] = as_array(inputs[0], input_desc[0])

    engine = load(build(one_plugin(Copy(), (2, 3), trt.int4)), PlusCreator(Copy))
    context = engine.create_execution_context()
    x = np.array([0x21, 0x43, 0x65, 99, 99, 99], np.uint8)  # three bytes are the tensor
    y = np.full(6, 77, np.uint8)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address("y0", y.ctypes.data)
    assert context.execute_async_v3(0)
    assert y.tolist() == [0x21, 0x43, 0x65, 77, 77, 77]


# empty tensors


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_empty_tensors_reach_enqueue_with_their_dims(shape: tuple[int, int]) -> None:
    trace: list[Any] = []
    plan = build(one_plugin(Plus(), (-1, -1)), profiles=[{"x": ((0, 0), (2, 3), (4, 4))}])
    engine = load(plan, PlusCreator(Plus, trace))
    assert engine(np.zeros(shape, np.float32)).shape == shape
    assert tuple(details(trace, "on_shape_change")[0][0][0].dims) == shape
    assert details(trace, "enqueue")[0][1] == [shape]
    assert engine(np.zeros((2, 3), np.float32)).shape == (2, 3)
    context = engine.create_execution_context()
    result = run_bound(engine, {"x": np.zeros(shape, np.float32)}, context)
    assert result["y0"].shape == shape


def test_resources_taken_on_shape_changes_are_given_back_in_destroy() -> None:
    released: list[str] = []

    class Table(trt.IPluginResource):
        def __init__(self) -> None:
            trt.IPluginResource.__init__(self)
            self.values: Any = None

        def clone(self) -> Any:
            twin = Table()
            twin.values = np.full(3, 5.0, np.float32)
            return twin

        def release(self) -> None:
            released.append("table")
            self.values = None

    class Sharing(Plus):
        table: Any = None

        def on_shape_change(self, inp: Any, out: Any) -> None:
            if self.table is None:
                self.table = trt.get_plugin_registry().acquire_plugin_resource("contract-table", Table())

        def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
            x = as_array(inputs[0], input_desc[0])
            as_array(outputs[0], output_desc[0])[...] = x + self.table.values

        def destroy(self) -> None:
            if self.table is not None:
                self.table = None
                trt.get_plugin_registry().release_plugin_resource("contract-table")

    engine = load(build(one_plugin(Sharing())), PlusCreator(Sharing))
    contexts = [engine.create_execution_context() for _ in range(2)]
    for context in contexts:
        np.testing.assert_array_equal(run_bound(engine, {"x": X}, context)["y0"], X + 5)
    assert released == []
    contexts[0].close()
    assert released == []
    contexts[1].close()
    assert released == ["table"]
