"""Section 6 and the cautions of section 8: what plugin users report against other engines, held here as rules."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dovetail as trt
from dovetail.plugin import as_array
from tests.conformance.contract.authors import (
    LINEAR,
    Parts,
    PartsCreator,
    Plus,
    PlusCreator,
    build,
    details,
    load,
    one_plugin,
    run_bound,
)

X = np.arange(6, dtype=np.float32).reshape(2, 3)
PROFILE = [{"x": ((1, 3), (2, 3), (64, 3))}]


# exceptions anywhere are named (cautions 4 and 7)


@pytest.mark.parametrize(
    "attribute", ["num_outputs", "plugin_name", "timing_cache_id", "metadata_string", "format_combination_limit"]
)
def test_attributes_that_raise_are_named(attribute: str) -> None:
    def explode(self: Any) -> Any:
        raise RuntimeError("boom")

    body = {attribute: property(explode, lambda self, value: None)}
    broken = type("Broken", (Plus,), body)
    with pytest.raises(trt.PluginError, match=rf"{attribute} raised RuntimeError: boom"):
        build(one_plugin(broken()))


def test_a_capability_that_raises_is_named() -> None:
    class Broken(Plus):
        def get_capability_interface(self, type: Any) -> Any:
            raise RuntimeError("boom")

    with pytest.raises(trt.PluginError, match=r"get_capability_interface\(CORE\) raised RuntimeError: boom"):
        build(one_plugin(Broken()))


def test_an_alias_that_raises_is_named() -> None:
    class Broken(Plus, trt.IPluginV3OneBuildV2):
        def get_aliased_input(self, output_index: int) -> int:
            raise RuntimeError("boom")

    with pytest.raises(trt.PluginError, match="get_aliased_input raised RuntimeError: boom"):
        build(
            one_plugin(Broken()),
            configure=lambda c: c.set_preview_feature(trt.PreviewFeature.ALIASED_PLUGIN_IO_10_03, True),
        )


@pytest.mark.parametrize("value", [7, b"id", 1.5])
def test_an_id_that_is_no_text_is_named(value: Any) -> None:
    class Odd(Plus):
        tactics = (1, 2)

    plugin = Odd()
    plugin.timing_cache_id = value
    with pytest.raises(trt.PluginError, match="timing_cache_id"):
        build(one_plugin(plugin))


@pytest.mark.parametrize("value", [7, ["a"]])
def test_metadata_that_is_no_text_is_named(value: Any) -> None:
    plugin = Plus()
    plugin.metadata_string = value
    with pytest.raises(trt.PluginError, match="metadata_string"):
        build(one_plugin(plugin))


@pytest.mark.parametrize("value", ["many", None, 2.5])
def test_a_limit_that_is_no_number_is_named(value: Any) -> None:
    plugin = Plus()
    plugin.format_combination_limit = value
    with pytest.raises(trt.PluginError, match="format_combination_limit"):
        build(one_plugin(plugin))


def test_sys_exit_in_a_callback_ends_nothing() -> None:
    class Quitter(Plus):
        tactics = (1, 2)

        def compute(self, *args: Any) -> None:
            if self.tactic == 1:
                raise SystemExit(3)
            super().compute(*args)

    np.testing.assert_array_equal(load(build(one_plugin(Quitter())), PlusCreator(Plus))(X), X + 1)


# workspace (11)


class Scratch(Plus):
    """Needs as much workspace as its input has bytes."""

    def get_workspace_size(self, inp: Any, out: Any) -> int:
        return 4 * int(np.prod(tuple(inp[0].max)))

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int
    ) -> None:
        x, copy = as_array(inputs[0], input_desc[0]), as_array(workspace, input_desc[0])
        copy[...] = x
        as_array(outputs[0], output_desc[0])[...] = copy + np.float32(self.addend)


def _onnx_model(shape: list[Any]) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Plus", ["x"], ["y"], addend=1.0)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_an_open_engine_gives_workspace_for_whatever_shape_comes() -> None:
    registry = trt.PluginRegistry()
    registry.register_creator(PlusCreator(Scratch), "")
    engine = trt.compile(_onnx_model(["n", 3]), registry=registry)
    for rows in (1, 1000, 7):
        x = np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)
        np.testing.assert_array_equal(engine(x), x + 1)


def test_an_open_engine_shows_plugins_one_one_and_no_bound() -> None:
    trace: list[Any] = []
    registry = trt.PluginRegistry()
    registry.register_creator(PlusCreator(Plus, trace), "")
    trt.compile(_onnx_model(["n", 3]), registry=registry)
    [x], _ = details(trace, "configure_plugin")[0]
    assert (x.desc.dims, x.min, x.opt, x.max) == ((-1, 3), (1, 3), (1, 3), (-1, 3))


def test_an_open_engine_refuses_workspace_that_nobody_can_size() -> None:
    class Half(Scratch):
        """In the runtime phase it has no build capability."""

        is_runtime = False

        def get_capability_interface(self, type: Any) -> Any:
            return None if self.is_runtime and type == trt.PluginCapabilityType.BUILD else self

    class HalfCreator(PlusCreator):
        def create_plugin(self, name: str, fc: Any, phase: Any) -> Any:
            plugin = super().create_plugin(name, fc, phase)
            plugin.is_runtime = phase == trt.TensorRTPhase.RUNTIME
            return plugin

    registry = trt.PluginRegistry()
    registry.register_creator(HalfCreator(Half), "")
    with pytest.raises(trt.PluginError, match="workspace"):
        trt.compile(_onnx_model(["n", 3]), registry=registry)(X)
    engine = trt.compile(_onnx_model(["n", 3]), registry=registry, shapes={"x": ((1, 3), (2, 3), (9, 3))})
    np.testing.assert_array_equal(engine(X), X + 1)


def test_layers_share_workspace_one_after_the_other() -> None:
    def fill(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (-1, 3))
        for _ in range(3):
            x = network.add_plugin_v3([x], [], Scratch(1.0)).get_output(0)
        return x

    engine = load(build(fill, profiles=PROFILE), PlusCreator(Scratch))
    for rows in (64, 1):
        x = np.ones((rows, 3), np.float32)
        np.testing.assert_array_equal(engine(x), x + 3)


def _loop(network: Any, plugin: Any, *, shape: tuple[int, ...] = (4,)) -> list[Any]:
    x = network.add_input("x", trt.float32, shape)
    loop = network.add_loop()
    count = network.add_constant((), np.array(3, np.int32)).get_output(0)
    loop.add_trip_limit(count, trt.TripLimit.COUNT)
    state = loop.add_recurrence(x)
    y = network.add_plugin_v3([state.get_output(0)], [], plugin).get_output(0)
    state.set_input(1, y)
    every = loop.add_loop_output(y, trt.LoopOutput.CONCATENATE, 0)
    every.set_input(1, count)
    return [loop.add_loop_output(state.get_output(0), trt.LoopOutput.LAST_VALUE).get_output(0), every.get_output(0)]


def test_workspace_in_a_loop_with_dynamic_shapes() -> None:
    plan = build(lambda n: _loop(n, Scratch(), shape=(-1, 3)), profiles=PROFILE)
    engine = load(plan, PlusCreator(Scratch))
    for rows in (64, 2):
        x = np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)
        result = engine(x)
        np.testing.assert_allclose(result["y0"], x + 3, rtol=1e-6)
        np.testing.assert_allclose(result["y1"], [x + 1, x + 2, x + 3], rtol=1e-6)


def test_the_stream_reaches_plugins_in_bodies() -> None:
    streams: list[int] = []

    class Spy(Plus):
        def enqueue(self, *args: Any) -> None:
            streams.append(args[-1])
            super().enqueue(*args)

    engine = load(build(lambda n: _loop(n, Plus())), PlusCreator(Spy))
    context = engine.create_execution_context()
    arrays = {"x": np.zeros(4, np.float32), "y0": np.zeros(4, np.float32), "y1": np.zeros((3, 4), np.float32)}
    for name, array in arrays.items():
        context.set_tensor_address(name, array.ctypes.data)
    for stream in (5, 6):
        assert context.execute_async_v3(stream)
    assert streams == [5] * 3 + [6] * 3
    assert (arrays["y0"] == 3).all()


# aliasing in odd places (20)


class InPlace(Plus, trt.IPluginV3OneBuildV2):
    """x += addend, where input and output are one memory; it never reads the output before that."""

    def get_aliased_input(self, output_index: int) -> int:
        return 0

    def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
        assert inputs[0] == outputs[0]
        as_array(inputs[0], input_desc[0])[...] += self.addend


def _preview(config: Any) -> None:
    config.set_preview_feature(trt.PreviewFeature.ALIASED_PLUGIN_IO_10_03, True)


def test_aliased_in_a_loop() -> None:
    engine = load(build(lambda n: _loop(n, InPlace()), configure=_preview), PlusCreator(InPlace))
    x = np.zeros(4, np.float32)
    for _ in range(2):
        result = engine(x)
        assert (x == 0).all()
        np.testing.assert_array_equal(result["y0"], np.full(4, 3))
        np.testing.assert_array_equal(result["y1"], [[1] * 4, [2] * 4, [3] * 4])


def test_aliased_in_a_branch_leaves_the_outside_alone() -> None:
    def fill(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (2, 3))
        doubled = network.add_elementwise(x, x, trt.ElementWiseOperation.SUM).get_output(0)
        conditional = network.add_if_conditional()
        conditional.set_condition(network.add_input("c", trt.bool, ()))
        inside = conditional.add_input(doubled).get_output(0)
        yes = network.add_plugin_v3([inside], [], InPlace(10.0)).get_output(0)
        no = network.add_identity(inside).get_output(0)
        chosen = conditional.add_output(yes, no).get_output(0)
        return [chosen, network.add_elementwise(chosen, doubled, trt.ElementWiseOperation.SUB).get_output(0)]

    engine = load(build(fill, configure=_preview), PlusCreator(InPlace))
    for flag, difference in ((True, 10), (False, 0)):
        result = engine(X, np.array(flag))
        np.testing.assert_array_equal(result["y0"], 2 * X + difference)
        np.testing.assert_array_equal(result["y1"], np.full_like(X, difference))


def test_aliased_after_a_data_dependent_layer() -> None:
    def fill(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (2, 3))
        found = network.add_non_zero(x, trt.int32).get_output(0)
        as_float = network.add_cast(found, trt.float32).get_output(0)
        return network.add_plugin_v3([as_float], [], InPlace(10.0)).get_output(0)

    engine = load(build(fill, configure=_preview), PlusCreator(InPlace))
    np.testing.assert_array_equal(engine(X), np.array(np.nonzero(X)) + 10)


def test_an_in_place_plugin_without_the_preview_feature_fails_the_build() -> None:
    with pytest.raises(trt.PluginError, match="ALIASED_PLUGIN_IO_10_03 is off"):
        build(one_plugin(InPlace()))


# shape inputs that are device inputs too (14)


def test_one_tensor_as_device_input_and_shape_input() -> None:
    class Repeat(Plus):
        def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
            return [trt.DimsExprs(list(shape_inputs[0]))]

        def get_output_data_types(self, input_types: Any) -> Any:
            return [trt.int64]

        def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
            shape = as_array(inputs[0], input_desc[0])
            assert tuple(shape) == tuple(output_desc[0].dims)
            as_array(outputs[0], output_desc[0])[...] = shape.sum()

    def fill(network: Any) -> Any:
        s = network.add_input("s", trt.int64, (2,))
        return network.add_plugin_v3([s], [s], Repeat()).get_output(0)

    def configure(config: Any) -> None:
        profile = trt.OptimizationProfile()
        profile.set_shape_input("s", (1, 1), (2, 2), (8, 8))
        config.add_optimization_profile(profile)

    engine = load(build(fill, configure=configure), PlusCreator(Repeat))
    for shape in ((2, 3), (8, 1)):
        y = engine(np.array(shape, np.int64))
        assert y.shape == shape
        assert (y == sum(shape)).all()


def test_contents_of_a_device_input_change_no_shapes() -> None:
    trace: list[Any] = []
    engine = load(build(one_plugin(Plus(), (3,), trt.int64)), PlusCreator(Plus, trace))
    for first in range(3):
        np.testing.assert_array_equal(engine(np.array([first, 1, 2])), [first + 1, 2, 3])
    assert len(details(trace, "on_shape_change")) == 1


# several contexts, profiles and threads (23, caution 9)


def test_contexts_in_threads_use_objects_of_their_own() -> None:
    users: dict[int, set[int]] = {}

    class Watched(Plus):
        def compute(self, *args: Any) -> None:
            users.setdefault(self.number, set()).add(threading.get_ident())
            super().compute(*args)

    engine = load(build(one_plugin(Plus(), (-1, 3)), profiles=PROFILE), PlusCreator(Watched))
    failures: list[Any] = []

    def work(rows: int) -> None:
        context = engine.create_execution_context()
        for _ in range(20):
            x = np.full((rows, 3), rows, np.float32)
            if not (run_bound(engine, {"x": x}, context)["y0"] == rows + 1).all():
                failures.append(rows)

    threads = [threading.Thread(target=work, args=(rows,)) for rows in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert all(len(idents) == 1 for idents in users.values())


def test_two_engines_of_one_plan_share_nothing() -> None:
    plan = build(one_plugin(Plus()))
    creators = [PlusCreator(), PlusCreator()]
    engines = [load(plan, creator) for creator in creators]
    creators[0].created[0][3].addend = 50.0
    np.testing.assert_array_equal(engines[0](X), X + 50)
    np.testing.assert_array_equal(engines[1](X), X + 1)


def test_composition_in_several_contexts_carries_the_tactic() -> None:
    engine = load(build(one_plugin(Parts(3.0))), PartsCreator())
    for context in [engine.create_execution_context() for _ in range(3)]:
        np.testing.assert_array_equal(run_bound(engine, {"x": X}, context)["y0"], X * 3)


# what a plugin may use of its context (1.2-D)


def test_the_runtimes_allocator_is_the_plugins() -> None:
    class Counting(trt.IGpuAllocator):
        def __init__(self) -> None:
            trt.IGpuAllocator.__init__(self)
            self.blocks: dict[int, Any] = {}

        def allocate(self, size: int, alignment: int, flags: int) -> int:
            block = np.zeros(size, np.uint8)
            self.blocks[block.ctypes.data] = block
            return block.ctypes.data

        def deallocate(self, memory: int) -> bool:
            return self.blocks.pop(memory, None) is not None

    class Allocating(Plus):
        block = 0

        def attach_to_context(self, context: Any) -> Any:
            twin = self.clone()
            twin.allocator = context.gpu_allocator
            twin.block = twin.allocator.allocate(64, 1, 0)
            return twin

        def destroy(self) -> None:
            if self.block:
                assert self.allocator.deallocate(self.block)

    runtime = trt.Runtime()
    allocator = runtime.gpu_allocator = Counting()
    runtime.get_plugin_registry().register_creator(PlusCreator(Allocating), "")
    engine = runtime.deserialize_cuda_engine(build(one_plugin(Plus())))
    context = engine.create_execution_context()
    assert len(allocator.blocks) == 1
    run_bound(engine, {"x": X}, context)
    context.close()
    assert not allocator.blocks


def test_a_recorder_set_on_a_context_hears_its_plugins() -> None:
    class Reporting(Plus):
        def attach_to_context(self, context: Any) -> Any:
            twin = self.clone()
            twin.context = context
            return twin

        def compute(self, *args: Any) -> None:
            self.context.error_recorder.report_error(trt.ErrorCode.FAILED_COMPUTATION, "overflow")
            super().compute(*args)

    engine = load(build(one_plugin(Plus())), PlusCreator(Reporting))
    context = engine.create_execution_context()
    recorder = context.error_recorder = trt.ErrorRecorder()
    run_bound(engine, {"x": X}, context)
    assert recorder.get_error_desc(0) == "overflow"


# formats in a network (9)


def test_formats_meet_through_reformats() -> None:
    class Channels(Plus):
        formats = (trt.TensorFormat.HWC,)

    class Vectors(Plus):
        formats = (trt.TensorFormat.CHW32,)

        def __init__(self, addend: float = 1.0, trace: Any = None) -> None:
            super().__init__(addend, trace)
            self.plugin_name = "Vectors"

    def fill(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (1, 5, 2, 3))
        a = network.add_plugin_v3([x], [], Channels(1.0)).get_output(0)
        b = network.add_plugin_v3([a], [], Vectors(2.0)).get_output(0)
        return [a, network.add_plugin_v3([b], [], Plus(3.0)).get_output(0)]

    class Both(PlusCreator):
        def create_plugin(self, name: str, fc: Any, phase: Any) -> Any:
            addend = float(fc[0].data[0])
            return {1.0: Channels, 3.0: Plus}[addend](addend)

    vectors = PlusCreator(Vectors)
    vectors.name = "Vectors"
    x = np.random.default_rng(3).standard_normal((1, 5, 2, 3)).astype(np.float32)
    result = load(build(fill), Both(), vectors)(x)
    np.testing.assert_allclose(result["y0"], x + 1, rtol=1e-6)
    np.testing.assert_allclose(result["y1"], x + 6, rtol=1e-6)


def test_marking_a_tensor_as_output_changes_no_result() -> None:
    def fill(mark: bool) -> Any:
        def inner(network: Any) -> Any:
            x = network.add_input("x", trt.float32, (2, 3))
            a = network.add_plugin_v3([x], [], Plus(1.0)).get_output(0)
            b = network.add_plugin_v3([a], [], Plus(2.0)).get_output(0)
            return [b, a] if mark else [b]

        return inner

    plain = load(build(fill(False)), PlusCreator())(X)
    marked = load(build(fill(True)), PlusCreator())(X)
    np.testing.assert_array_equal(plain, marked["y0"])
    np.testing.assert_array_equal(marked["y1"], X + 1)


def test_null_addresses_are_never_given_for_empty_tensors() -> None:
    class Empty(Plus):
        def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
            return [trt.DimsExprs([exprBuilder.constant(0), inputs[0][1]])]

        def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
            return bool(in_out[pos].desc.format == LINEAR)

        def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, *rest: Any) -> None:
            assert inputs[0]
            assert outputs[0]
            self.note("enqueue")

    trace: list[Any] = []
    assert load(build(one_plugin(Empty())), PlusCreator(Empty, trace))(X).shape == (0, 3)
    assert details(trace, "enqueue")
