"""Every plugin layer runs once before a plan is saved, and a plugin that fails ends the build."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dovetail as dt
from dovetail.plugin import as_array, write_scalar
from dovetail.plugin.quick import layer as quick_layer
from dovetail.testing import host_device
from tests.support.plugins import PlainCreator, ScalePlugin

Enqueue = Callable[..., Any]


class One(ScalePlugin):
    """One format and one tactic, so that nothing is timed; ``body`` is what ``enqueue`` does."""

    formats = (dt.TensorFormat.LINEAR,)
    types = (dt.float32, dt.int32, dt.bool, dt.float16)
    tactics = ()
    body: Enqueue | None = None
    workspace_bytes = 0

    def get_workspace_size(self, inputs: Any, outputs: Any) -> int:
        return self.workspace_bytes

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, *rest: Any) -> Any:
        self.note("enqueue", [tuple(desc.dims) for desc in input_desc])
        x, y = as_array(inputs[0], input_desc[0]), as_array(outputs[0], output_desc[0])
        body = type(self).body
        if body is None:
            y[...] = x
            return None
        return body(x, y)


def make_class(base: type[One] = One, **members: Any) -> type[One]:
    return type("Made", (base,), members)


class Messages(dt.ILogger):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[dt.Severity, str]] = []

    def log(self, severity: Any, msg: str) -> None:
        self.lines.append((severity, msg))

    def find(self, text: str) -> list[str]:
        return [line for _, line in self.lines if text in line]


def build(
    plugin: Any,
    *,
    shape: tuple[int, ...] = (2, 3),
    profiles: Any = (),
    dtype: Any = dt.float32,
    configure: Callable[[Any], None] = lambda config: None,
    logger: Any = None,
) -> Any:
    builder = dt.Builder(logger)
    network = builder.create_network()
    x = network.add_input("x", dtype, shape)
    layer = network.add_plugin_v3([x], [], plugin)
    layer.name = "the layer"
    network.mark_output(layer.get_output(0))
    config = builder.create_builder_config()
    config.providers = ["cpu"]
    configure(config)
    for bounds in profiles:
        profile = builder.create_optimization_profile()
        profile.set_shape("x", *bounds)
        config.add_optimization_profile(profile)
    return builder.build_plan(network, config)


def _raise(x: Any, y: Any) -> None:
    raise ValueError("boom 17")


def _write_past(x: Any, y: Any) -> None:
    y[...] = x
    np.ndarray((y.size + 2,), y.dtype, buffer=_memory_at(y))[-1] = 1


def _memory_at(array: Any) -> Any:
    import ctypes

    return (ctypes.c_char * (array.nbytes + 8)).from_address(array.ctypes.data)


FAULTS: dict[str, tuple[Enqueue, str]] = {
    "raises": (_raise, "enqueue raised ValueError: boom 17"),
    "status": (lambda x, y: 7, "enqueue returned status 7"),
    "false": (lambda x, y: False, "enqueue returned status False"),
    "shape": (lambda x, y: y.__setitem__(..., np.zeros((5, 5), y.dtype)), "enqueue raised ValueError"),
    "nothing": (lambda x, y: None, "enqueue returned success and wrote none of its outputs"),
    "past": (_write_past, "enqueue wrote .* past its end of output 0"),
    "exit": (lambda x, y: (_ for _ in ()).throw(SystemExit(3)), "enqueue raised SystemExit"),
}


@pytest.mark.parametrize(("body", "message"), FAULTS.values(), ids=FAULTS)
def test_a_plugin_with_one_candidate_that_fails_ends_the_build(body: Enqueue, message: str) -> None:
    with pytest.raises(dt.PluginError, match=message) as caught:
        build(make_class(body=staticmethod(body))())
    text = str(caught.value)
    assert "layer 'the layer'" in text
    assert "plugin 'TestScale' version '1' (Made)" in text
    assert "profile 0" in text
    assert text.count("fix:") == 1
    if message.startswith("enqueue raised ValueError: boom"):
        assert f"{__file__}:" in text


@pytest.mark.parametrize("method", ["on_shape_change", "set_tactic", "get_workspace_size"])
def test_other_callbacks_that_fail_end_the_build(method: str) -> None:
    def fail(self: Any, *args: Any) -> Any:
        raise ValueError("boom 18")

    with pytest.raises(dt.PluginError, match=f"{method} raised ValueError: boom 18"):
        build(make_class(**{method: fail})(), configure=lambda config: setattr(config, "strict", True))


def test_a_failing_shape_change_status_ends_the_build() -> None:
    with pytest.raises(dt.PluginError, match="on_shape_change returned status 4"):
        build(make_class(on_shape_change=lambda self, *args: 4)())


def test_a_plugin_runs_once_at_the_optimum_of_each_profile() -> None:
    calls: list[Any] = []
    build(One(1.0, calls), shape=(-1, 3), profiles=[((1, 3), (2, 3), (4, 3)), ((5, 3), (6, 3), (9, 3))])
    assert [detail for name, detail in calls if name == "enqueue"] == [[(2, 3)], [(6, 3)]]


def test_a_plugin_that_fails_only_at_the_second_profile_names_it() -> None:
    def only_small(x: Any, y: Any) -> None:
        assert len(x) < 5
        y[...] = x

    with pytest.raises(dt.PluginError, match="profile 1"):
        build(
            make_class(body=staticmethod(only_small))(),
            shape=(-1, 3),
            profiles=[((1, 3), (2, 3), (4, 3)), ((5, 3), (6, 3), (9, 3))],
        )


def test_a_timing_cache_hit_still_runs_the_plugin() -> None:
    cache = dt.TimingCache()
    is_broken = []

    def body(x: Any, y: Any) -> None:
        assert not is_broken
        y[...] = x

    kind = make_class(body=staticmethod(body), tactics=(1, 2), timing_cache_id="")
    build(kind(), configure=lambda config: config.set_timing_cache(cache, False))
    is_broken.append(1)
    with pytest.raises(dt.PluginError, match="enqueue raised AssertionError"):
        build(kind(), configure=lambda config: config.set_timing_cache(cache, False))


def test_a_tactic_that_writes_nothing_is_not_chosen() -> None:
    class Lazy(One):
        tactics = (1, 2)

        def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, *rest: Any) -> None:
            if self.tactic == 2:
                time.sleep(0.002)
                super().enqueue(input_desc, output_desc, inputs, outputs, *rest)

    plan = build(Lazy())
    (table,) = plan.manifest.tuning
    assert [(row.tactic, row.status, row.chosen) for row in table.candidates] == [
        (1, "failed", False),
        (2, "timed", True),
    ]
    assert "wrote none of its outputs" in (table.candidates[0].reason or "")


@pytest.mark.parametrize("dtype", [dt.float32, dt.int32, dt.bool, dt.float16])
def test_an_output_that_equals_the_fill_by_chance_is_accepted(dtype: Any) -> None:
    kind = np.dtype(dtype.numpy)
    for fill in (0xFF, 0xA5, 0x5B):
        value = np.frombuffer(bytes([fill]) * kind.itemsize, kind)[0]
        build(make_class(body=staticmethod(lambda x, y, value=value: y.fill(value)))(), dtype=dtype)


def test_an_output_written_in_part_is_reported_and_an_error_in_strict_builds() -> None:
    def half(x: Any, y: Any) -> None:
        y[0] = x[0]

    kind, messages = make_class(body=staticmethod(half)), Messages()
    build(kind(), logger=messages)
    (line,) = messages.find("enqueue wrote 3 of 6 elements of output 0")
    assert "layer 'the layer'" in line
    with pytest.raises(dt.PluginError, match="wrote 3 of 6 elements"):
        build(kind(), configure=lambda config: setattr(config, "strict", True))


def test_a_plugin_that_must_not_run_is_reported() -> None:
    calls: list[Any] = []
    messages = Messages()
    kind = make_class(body=staticmethod(_raise))
    build(kind(1.0, calls), logger=messages, configure=lambda config: setattr(config, "run_plugins", False))
    assert "enqueue" not in {name for name, _ in calls}
    (line,) = messages.find("enqueue was not run in this build")
    assert "run_plugins is False" in line
    assert "layer 'the layer'" in line


def test_too_little_memory_is_reported_and_nothing_runs() -> None:
    calls: list[Any] = []
    messages = Messages()
    build(One(1.0, calls), shape=(2**44,), logger=messages)
    assert "enqueue" not in {name for name, _ in calls}
    (line,) = messages.find("enqueue was not run in this build")
    assert "memory" in line


def test_a_plugin_that_hangs_ends_the_build() -> None:
    def hang(x: Any, y: Any) -> None:
        while True:
            time.sleep(0.01)

    def configure(config: Any) -> None:
        config.tactic_timeout_s = 0.3

    with pytest.raises(dt.PluginError, match="did not end within"):
        build(make_class(body=staticmethod(hang))(), configure=configure)


def test_a_failure_at_assumed_shapes_is_reported_and_an_error_in_strict_builds() -> None:
    node = onnx.helper.make_node("TestScale", ["x"], ["y"], factor=1.0)
    value = onnx.helper.make_tensor_value_info
    x, y = (value(name, onnx.TensorProto.FLOAT, ["n", 3]) for name in "xy")
    graph = onnx.helper.make_graph([node], "g", [x], [y])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)

    def at_least_two(x: Any, y: Any) -> None:
        assert len(x) >= 2
        y[...] = x

    registry = dt.PluginRegistry(parent=dt.get_plugin_registry())
    registry.register_creator(PlainCreator("TestScale", make_class(body=staticmethod(at_least_two))), "")
    messages = Messages()
    engine = dt.compile(model, registry=registry, providers=["cpu"], logger=messages)
    np.testing.assert_array_equal(engine(np.ones((2, 3), np.float32)), np.ones((2, 3), np.float32))
    (line,) = messages.find("enqueue raised AssertionError")
    assert "assumed input shapes (1, 3)" in line
    with pytest.raises(dt.PluginError, match="assumed input shapes"):
        dt.compile(model, registry=registry, providers=["cpu"], strict=True)
    dt.compile(model, registry=registry, providers=["cpu"], strict=True, shapes={"x": ((1, 3), (2, 3), (4, 3))})


@pytest.mark.parametrize("op", ["If", "Loop"])
def test_plugins_in_bodies_run_too(op: str) -> None:
    value, make = onnx.helper.make_tensor_value_info, onnx.helper.make_node
    real, number, flag = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL
    x, y = value("x", real, [4]), value("y", real, [4])
    plugin = make("TestScale", ["x" if op == "If" else "v"], ["z"], factor=1.0)
    z = value("z", real, [4])
    if op == "If":
        other = onnx.helper.make_graph([make("Neg", ["x"], ["w"])], "other", [], [value("w", real, [4])])
        body = onnx.helper.make_graph([plugin], "body", [], [z])
        node = make("If", ["c"], ["y"], then_branch=body, else_branch=other)
    else:
        nodes = [plugin, make("Identity", ["go"], ["going"])]
        inputs = [value("i", number, []), value("go", flag, []), value("v", real, [4])]
        body = onnx.helper.make_graph(nodes, "body", inputs, [value("going", flag, []), z])
        node = make("Loop", ["", "c", "x"], ["y"], body=body)
    graph = onnx.helper.make_graph([node], "g", [x, value("c", flag, [])], [y])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
    registry = dt.PluginRegistry(parent=dt.get_plugin_registry())
    registry.register_creator(PlainCreator("TestScale", make_class(body=staticmethod(_raise))), "")
    with pytest.raises(dt.PluginError, match="enqueue raised ValueError: boom 17"):
        dt.compile(model, registry=registry, providers=["cpu"])


class NonZeroLike(One):
    """Two outputs: the first elements of x, and how many there are."""

    count = 2
    upper = 3

    def __init__(self, factor: float = 1.0, calls: Any = None) -> None:
        super().__init__(factor, calls)
        self.num_outputs = 2

    def get_output_data_types(self, input_types: Any) -> Any:
        return [input_types[0], dt.int64]

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        upper = exprBuilder.constant(self.upper)
        return [dt.DimsExprs([exprBuilder.declare_size_tensor(1, upper, upper)]), dt.DimsExprs(0)]

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        return in_out[pos].desc.format is dt.TensorFormat.LINEAR

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, *rest: Any) -> None:
        if 0 < self.count <= self.upper:
            as_array(outputs[0], output_desc[0], shape=(self.count,))[...] = 1
        if self.count != 1000:
            write_scalar(outputs[1], dt.int64, self.count)


@pytest.mark.parametrize(
    ("count", "message"), [(4, "out of its bound"), (-1, "out of its bound"), (1000, "wrote none of its outputs")]
)
def test_a_size_beyond_its_bound_or_unwritten_ends_the_build(count: int, message: str) -> None:
    with pytest.raises(dt.PluginError, match=message):
        build(make_class(NonZeroLike, count=count)(), shape=(5,))


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_a_size_within_its_bound_is_accepted(count: int) -> None:
    messages = Messages()
    build(make_class(NonZeroLike, count=count)(), shape=(5,), logger=messages)
    assert not messages.find("enqueue wrote")


def test_a_plugin_reads_the_weights_that_the_network_gives_it() -> None:
    seen: list[Any] = []

    class Indexed(One):
        def get_output_data_types(self, input_types: Any) -> Any:
            return [input_types[0]]

        def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
            return in_out[pos].desc.format is dt.TensorFormat.LINEAR

        def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, *rest: Any) -> None:
            seen.append(as_array(inputs[1], input_desc[1]).copy())
            as_array(outputs[0], output_desc[0])[...] = as_array(inputs[0], input_desc[0])

    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input("x", dt.float32, (2, 3))
    indices = network.add_constant((2,), np.array([7, 9], np.int32)).get_output(0)
    network.mark_output(network.add_plugin_v3([x, indices], [], Indexed()).get_output(0))
    builder.build_plan(network, builder.create_builder_config())
    assert [array.tolist() for array in seen] == [[7, 9]]


@pytest.mark.parametrize("valid", [0, 1, None])
def test_integer_inputs_are_zeros_then_a_mixture_then_ones(valid: int | None) -> None:
    def pick(x: Any, y: Any) -> None:
        assert valid is not None
        assert (x == valid).all()
        y[...] = x

    messages = Messages()
    kind = make_class(body=staticmethod(pick))
    build(kind(), dtype=dt.int32, shape=(64,), logger=messages)
    assert bool(messages.find("integer inputs of this layer")) == (valid is None)
    if valid is None:
        with pytest.raises(dt.PluginError, match="enqueue raised AssertionError"):
            build(kind(), dtype=dt.int32, shape=(64,), configure=lambda config: setattr(config, "strict", True))


QUICK_FAULTS: dict[str, tuple[Enqueue, str]] = {
    "none": (lambda x: None, "returned nothing"),
    "shape": (lambda x: np.zeros((7, 7), np.float32), "another shape"),
    "type": (lambda x: x.astype(np.complex64), "type that does not fit"),
    "count": (lambda x: (x, x), "one array for each output"),
    "raises": (lambda x: 1 // 0, "ZeroDivisionError"),
}


@pytest.mark.parametrize(("function", "message"), QUICK_FAULTS.values(), ids=QUICK_FAULTS)
def test_a_decorated_layer_that_fails_ends_the_build(function: Enqueue, message: str) -> None:
    def run(x):  # type: ignore[no-untyped-def]
        return function(x)

    made = quick_layer(f"test::Faulty{abs(hash(message))}")(run)
    with pytest.raises(dt.PluginError, match=message) as caught:
        build(made.plugin())
    assert "layer 'the layer'" in str(caught.value)
    assert str(caught.value).count("fix:") == 1


SIZES = st.lists(st.integers(0, 3), min_size=1, max_size=3)
BEHAVIOURS = ("good", "raises", "status", "nothing", "past", "part")


@given(
    behaviour=st.sampled_from(BEHAVIOURS),
    shape=SIZES,
    dtype=st.sampled_from([dt.float32, dt.int32, dt.bool, dt.float16]),
    num_tactics=st.integers(0, 2),
)
def test_a_build_succeeds_exactly_when_the_plugin_works(
    behaviour: str, shape: list[int], dtype: Any, num_tactics: int
) -> None:
    """Plugins that fail in one of five ways, over shapes with empty ones, four types and up to two tactics."""

    def act(x: Any, y: Any) -> Any:
        if behaviour == "raises":
            raise RuntimeError("boom")
        if behaviour == "past" and y.size:
            _write_past(x, y)
        elif behaviour == "part":
            y.reshape(-1)[: y.size // 2] = 1
        elif behaviour != "nothing":
            y[...] = x
        return 3 if behaviour == "status" else None

    kind = make_class(body=staticmethod(act), tactics=tuple(range(1, num_tactics + 1)))
    size = int(np.prod(shape))
    is_wrong = behaviour in ("raises", "status") or (behaviour in ("nothing", "past") and size > 0)
    is_wrong = is_wrong or (behaviour == "part" and size == 1)
    messages = Messages()
    if is_wrong and size and dtype is dt.int32 and behaviour in ("raises", "status") and num_tactics < 2:
        build(kind(), shape=tuple(shape), dtype=dtype, logger=messages)
        assert messages.find("integer inputs of this layer")  # they may be at fault
        return
    if is_wrong:
        with pytest.raises(dt.DovetailError):
            build(kind(), shape=tuple(shape), dtype=dtype, logger=messages)
        return
    build(kind(), shape=tuple(shape), dtype=dtype, logger=messages)
    assert bool(messages.find("enqueue wrote")) == (behaviour == "part" and size > 1)


@pytest.mark.parametrize("fault", ["raises", "nothing"])
def test_a_plugin_on_a_device_runs_there_and_its_failure_is_named(fault: str) -> None:
    seen: list[int] = []

    class OnDevice(One):
        preferred_memory = "host_device"

        def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, *rest: Any) -> None:
            seen.append(rest[1])
            if fault == "raises":
                raise ValueError("boom 19")

    def configure(config: Any) -> None:
        config.providers = ["host_device", "cpu"]
        config.layer_providers["the layer"] = "host_device"

    with (
        host_device(),
        pytest.raises(dt.PluginError, match="boom 19" if fault == "raises" else "wrote none of its outputs"),
    ):
        build(OnDevice(), configure=configure)
    assert all(seen), "the plugin gets a stream"
    assert seen
