"""The low-level context: shapes, addresses, profiles, errors, profiling."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import dovetail as dt
from tests.support.plugins import PlainCreator, ScalePlugin, build_engine


def _engine(calls: list | None = None, **kwargs: Any) -> Any:
    creator = PlainCreator("TestScale", lambda factor: ScalePlugin(factor, calls))
    plan, runtime = build_engine(ScalePlugin(2.0), creator, **kwargs)
    return runtime.deserialize_cuda_engine(plan)


def _dynamic(calls: list | None = None) -> Any:
    def second(config: Any) -> None:
        profile = dt.OptimizationProfile()
        profile.set_shape("x", (8, 3), (16, 3), (32, 3))
        config.add_optimization_profile(profile)

    return _engine(calls, shape=(-1, 3), profile=((1, 3), (2, 3), (4, 3)), configure=second)


def test_on_shape_change_is_called_after_every_change_and_only_then() -> None:
    calls: list = []
    context = _dynamic(calls).create_execution_context()
    x, y = np.ones((4, 3), np.float32), np.empty((4, 3), np.float32)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address("y", y.ctypes.data)

    def run_with(shape: tuple[int, int]) -> list[str]:
        del calls[:]
        context.set_input_shape("x", shape)
        context.execute_async_v3(0)
        return [name for name, _ in calls]

    assert run_with((2, 3)) == ["on_shape_change", "enqueue"]
    assert run_with((2, 3)) == ["enqueue"]
    assert run_with((3, 3)) == ["on_shape_change", "enqueue"]
    other = np.empty((4, 3), np.float32)
    context.set_tensor_address("y", other.ctypes.data)
    assert run_with((3, 3)) == ["on_shape_change", "enqueue"]
    np.testing.assert_allclose(other[:3], 2.0)


def test_set_tactic_is_called_once_and_carried_by_attach() -> None:
    calls: list = []
    engine = _dynamic(calls)
    assert [name for name, _ in calls].count("set_tactic") == 2  # one program for each of two profiles
    context = engine.create_execution_context()
    context.set_optimization_profile_async(1, 0)
    assert [name for name, _ in calls].count("set_tactic") == 2


def test_profiles_bound_the_shapes() -> None:
    context = _dynamic().create_execution_context()
    with pytest.raises(dt.InputError, match="outside profile 0"):
        context.set_input_shape("x", (16, 3))
    context.set_optimization_profile_async(1, 0)
    assert context.set_input_shape("x", (16, 3))
    assert tuple(context.get_tensor_shape("y")) == (16, 3)
    with pytest.raises(dt.UsageError, match="no such profile"):
        context.set_optimization_profile_async(2, 0)


def test_profiles_are_reported() -> None:
    engine = _dynamic()
    assert [tuple(d) for d in engine.get_tensor_profile_shape("x", 1)] == [(8, 3), (16, 3), (32, 3)]
    assert tuple(engine.get_tensor_shape("x")) == (-1, 3)
    assert engine.get_tensor_mode("x") == dt.TensorIOMode.INPUT
    assert engine.get_tensor_dtype("y") == dt.float32
    assert [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)] == ["x", "y"]


def test_execute_v2_takes_addresses_in_order() -> None:
    context = _engine(shape=(2, 3)).create_execution_context()
    x, y = np.ones((2, 3), np.float32), np.empty((2, 3), np.float32)
    assert context.execute_v2([x.ctypes.data, y.ctypes.data])
    np.testing.assert_allclose(y, 2.0)
    with pytest.raises(dt.InputError, match="wrong number of bindings"):
        context.execute_v2([x.ctypes.data])


def test_what_is_missing_is_named() -> None:
    context = _dynamic().create_execution_context()
    assert context.infer_shapes() == ["x"]
    with pytest.raises(dt.InputError, match="x: input shapes are not set"):
        context.execute_async_v3(0)
    context.set_input_shape("x", (2, 3))
    assert context.infer_shapes() == []
    with pytest.raises(dt.InputError, match="input 'x': no address is set"):
        context.execute_async_v3(0)
    with pytest.raises(dt.UsageError, match="there is no tensor 'z'"):
        context.set_tensor_address("z", 1)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros((2, 4), np.float32), "wrong shape"),
        (np.zeros((2, 3), np.float64), "wrong type"),
        (object(), "not an array"),
    ],
)
def test_wrong_inputs_are_refused(value: Any, message: str) -> None:
    engine = _engine(shape=(2, 3))
    with pytest.raises(dt.InputError, match=message):
        engine(value)
    with pytest.raises(dt.InputError, match="wrong number of inputs"):
        engine()
    with pytest.raises(dt.InputError, match="unknown or repeated"):
        engine(q=value)


def test_inputs_that_are_not_contiguous_are_copied_and_results_belong_to_the_caller() -> None:
    engine = _engine(shape=(2, 3))
    x = np.arange(12, dtype=np.float32).reshape(2, 6)[:, ::2]
    one = engine(x)
    two = engine(np.zeros((2, 3), np.float32))
    np.testing.assert_allclose(one, x * 2)
    np.testing.assert_allclose(two, 0.0)


def test_dlpack_comes_in_without_a_copy() -> None:
    seen: list[int] = []

    class Spy(ScalePlugin):
        def enqueue(self, a: Any, b: Any, inputs: Any, *rest: Any) -> None:
            seen.append(inputs[0])
            super().enqueue(a, b, inputs, *rest)

    plan, runtime = build_engine(ScalePlugin(2.0), PlainCreator("TestScale", Spy), shape=(2, 3))
    engine = runtime.deserialize_cuda_engine(plan)

    class Exporter:
        def __init__(self, array: Any) -> None:
            self.array = array

        def __dlpack__(self, **kwargs: Any) -> Any:
            return self.array.__dlpack__(**kwargs)

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    x = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(engine(Exporter(x)), 2.0)
    assert seen == [x.ctypes.data]


def test_a_raising_plugin_is_named_with_its_place() -> None:
    class Raising(ScalePlugin):
        def enqueue(self, *args: Any) -> None:
            raise ValueError("kernel launch failed")

    plan, runtime = build_engine(ScalePlugin(2.0), PlainCreator("TestScale", Raising), shape=(2, 3))
    engine = runtime.deserialize_cuda_engine(plan)
    with pytest.raises(
        dt.PluginError, match=r"'TestScale'.*test_context\.py:\d+: enqueue raised ValueError: kernel launch"
    ):
        engine(np.ones((2, 3), np.float32))


def test_a_failed_run_is_kept_by_the_error_recorder() -> None:
    class Raising(ScalePlugin):
        def enqueue(self, *args: Any) -> None:
            raise ValueError("kernel launch failed")

    plan, runtime = build_engine(ScalePlugin(2.0), PlainCreator("TestScale", Raising), shape=(2, 3))
    context = runtime.deserialize_cuda_engine(plan).create_execution_context()
    with pytest.raises(dt.PluginError):
        context.run([np.ones((2, 3), np.float32)])
    assert context.error_recorder.num_errors() == 1
    assert context.error_recorder.get_error_code(0) == dt.ErrorCode.FAILED_EXECUTION
    assert "kernel launch failed" in context.error_recorder.get_error_desc(0)


def test_layer_times_are_reported() -> None:
    engine = _engine(shape=(2, 3))
    context = engine.create_execution_context()
    context.profiler = dt.LayerTimes()
    context.run([np.ones((2, 3), np.float32)])
    rows = context.profiler.rows()
    assert [row["name"] for row in rows] == [step.name for step in engine.manifest.programs[0].steps]
    assert all(row["timeMs"] >= 0 for row in rows)


def test_contexts_destroy_their_plugins() -> None:
    calls: list = []
    engine = _engine(calls, shape=(2, 3))
    context = engine.create_execution_context()
    context.close()
    assert [name for name, _ in calls].count("destroy") == 1
    engine.create_execution_context()
    gc.collect()
    assert [name for name, _ in calls].count("destroy") == 2
    engine.close()
    assert [name for name, _ in calls].count("destroy") == 3


def test_an_attach_that_returns_the_object_itself_is_refused() -> None:
    class Selfish(ScalePlugin):
        def attach_to_context(self, context: Any) -> Any:
            return self

    plan, runtime = build_engine(ScalePlugin(2.0), PlainCreator("TestScale", Selfish), shape=(2, 3))
    with pytest.raises(dt.PluginError, match="attach_to_context returned the object itself"):
        runtime.deserialize_cuda_engine(plan).create_execution_context()


def test_each_context_has_a_resource_context_of_its_own() -> None:
    seen: list = []

    class Keeping(ScalePlugin):
        def attach_to_context(self, context: Any) -> Any:
            seen.append(context)
            address = context.gpu_allocator.allocate(64, 256, 0)
            assert address % 256 == 0
            assert context.gpu_allocator.deallocate(address)
            return super().attach_to_context(context)

    plan, runtime = build_engine(ScalePlugin(2.0), PlainCreator("TestScale", Keeping), shape=(2, 3))
    engine = runtime.deserialize_cuda_engine(plan)
    kept = [engine.create_execution_context() for _ in range(2)]
    assert len(kept) == 2
    assert seen[0] is not seen[1]


def test_a_plugin_gets_the_workspace_it_asked_for() -> None:
    seen: list = []

    class Scratch(ScalePlugin):
        def get_workspace_size(self, inputs: Any, outputs: Any) -> int:
            return 1000

        def enqueue(self, a: Any, b: Any, c: Any, d: Any, workspace: int, stream: int) -> None:
            seen.append((workspace, stream))
            super().enqueue(a, b, c, d, workspace, stream)

    plan, runtime = build_engine(Scratch(2.0), PlainCreator("TestScale", Scratch), shape=(2, 3))
    del seen[:]
    context = runtime.deserialize_cuda_engine(plan).create_execution_context()
    x, y = np.ones((2, 3), np.float32), np.empty((2, 3), np.float32)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address("y", y.ctypes.data)
    context.execute_async_v3(77)
    assert seen[0][0] != 0
    assert seen[0][0] % 256 == 0
    assert seen[0][1] == 77


def test_an_open_engine_takes_any_shape() -> None:
    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input("x", dt.float32, (-1, -1))
    y = network.add_plugin_v3([x], [], ScalePlugin(2.0)).get_output(0)
    z = network.add_activation(y, dt.ActivationType.RELU).get_output(0)
    network.mark_output(z)
    registry = dt.PluginRegistry(parent=dt.get_plugin_registry())
    registry.register_creator(PlainCreator("TestScale", ScalePlugin), "")
    engine = dt.compile(network, registry=registry)
    for shape in ((1, 1), (7, 5), (0, 4), (64, 64), (7, 5)):
        data = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        np.testing.assert_allclose(engine(data), np.maximum(data * 2, 0), rtol=1e-6)


def test_the_builder_refuses_dynamic_dims_without_a_profile() -> None:
    with pytest.raises(dt.UsageError, match="no optimization profile"):
        _engine(shape=(-1, 3))


def test_shapes_that_were_asked_for_do_not_stay_for_a_run_with_arrays() -> None:
    context = _dynamic().create_execution_context()
    x = np.ones((2, 3), np.float32)
    context.run([x])
    context.set_input_shape("x", (4, 3))
    assert tuple(context.get_tensor_shape("y")) == (4, 3)
    assert context.run([x])[0].shape == (2, 3)


@pytest.mark.parametrize("bad", [None, "ab", 5, (1.5, 3), (None, 3)])
def test_what_is_no_shape_is_refused(bad: Any) -> None:
    context = _dynamic().create_execution_context()
    with pytest.raises(dt.UsageError, match="not a list of integers"):
        context.set_input_shape("x", bad)
    with pytest.raises(dt.UsageError, match="not a list of integers"):
        dt.OptimizationProfile().set_shape("x", (1, 3), (1, 3), bad)


@pytest.mark.parametrize("bad", [None, "abc", -8, 2.5])
def test_what_is_no_address_is_refused(bad: Any) -> None:
    with pytest.raises(dt.UsageError, match="address"):
        _dynamic().create_execution_context().set_tensor_address("x", bad)


def test_a_profile_has_no_negative_sizes() -> None:
    with pytest.raises(dt.UsageError, match="negative"):
        dt.OptimizationProfile().set_shape("x", (-1, 3), (1, 3), (2, 3))


@pytest.mark.parametrize(
    "inputs", [[], [np.ones((2, 3), np.float32)] * 2, [np.ones((2, 3), np.float16)], [[[1, 2, 3], [4]]], [None]]
)
def test_arrays_are_checked_in_every_way_to_run(inputs: list) -> None:
    engine = _dynamic()
    for run in (engine.create_execution_context().run, lambda arrays: engine(*arrays)):
        with pytest.raises(dt.InputError):
            run(inputs)


def test_arrays_of_other_kinds_are_plain_arrays_inside() -> None:
    engine = _dynamic()
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    shifted = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(2, 3)
    assert not shifted.flags.aligned
    for other in (x.view(np.recarray), shifted, x[:, ::-1][:, ::-1], x.tolist()):
        result = engine(other)
        assert type(result) is np.ndarray
        np.testing.assert_array_equal(result, x * 2)
    with pytest.raises(dt.InputError, match="other byte order"):
        engine(x.astype(">f4"))


def test_nothing_runs_after_closing() -> None:
    engine = _dynamic()
    x = np.ones((2, 3), np.float32)
    context = engine.create_execution_context()
    context.run([x])
    context.close()
    with pytest.raises(dt.UsageError, match="context is closed"):
        context.run([x])
    other = engine.create_execution_context()
    other.run([x])
    engine.close()
    for run in (lambda: other.run([x]), lambda: engine(x), engine.create_execution_context):
        with pytest.raises(dt.UsageError, match="closed"):
            run()


def test_an_engine_is_saved_to_a_path() -> None:
    with pytest.raises(dt.UsageError, match="not a path"):
        _engine(shape=(2, 3)).save(5)
