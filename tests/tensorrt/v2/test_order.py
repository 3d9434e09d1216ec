"""The order of a V2 plugin's life, its failures, contexts and processes."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail as dt
from dovetail_tensorrt import v2
from tests.tensorrt.v2.noted import CALLS, NotedCreator, NotedPlugin
from tests.tensorrt.v2_files import FILES, PluginFile, build_plan, run_plan

FILE = PluginFile("noted", "NotedCreator", ((2, 3),), lambda x: (x * 2,))
X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(autouse=True)
def forget_calls() -> None:
    CALLS.clear()


def build(plugin: Any, **options: Any) -> bytes:
    plan = build_plan(FILE, lambda network, inputs: network.add_plugin_v2(inputs, plugin), **options)
    gc.collect()  # the network, which holds a clone, goes now and not during what a test looks at
    return plan


def load(plan: bytes, creator: Any) -> Any:
    runtime = dt.Runtime()
    runtime.get_plugin_registry().register_creator(v2.adapt_creator(creator))
    return runtime.deserialize_cuda_engine(plan)


def test_the_build_phase_of_a_plugin_with_one_candidate() -> None:
    build(NotedPlugin())
    assert CALLS.count("initialize") == CALLS.count("terminate") == 1
    assert len([call for call in CALLS if call.startswith("enqueue")]) == 1
    assert CALLS.index("clone") < CALLS.index("attach") < CALLS.index("configure (-1, 3) (1, 3)..(4, 3)")
    assert CALLS.index("configure (-1, 3) (1, 3)..(4, 3)") < CALLS.index("workspace (4, 3)") < CALLS.index("serialize")
    assert CALLS.count("detach") == CALLS.count("attach")
    assert CALLS.count("destroy") == CALLS.count("clone")


def test_several_formats_are_timed_after_initialize_and_terminated() -> None:
    class Linear3(NotedPlugin):
        formats = (dt.TensorFormat.LINEAR, dt.TensorFormat.CHW32)

    file = PluginFile("noted", "NotedCreator", ((2, 3, 4, 4),), lambda x: (x * 2,))
    plan = build_plan(file, lambda network, inputs: network.add_plugin_v2(inputs, Linear3()))
    gc.collect()
    assert CALLS.count("initialize") == CALLS.count("terminate") == 2
    first = CALLS.index("initialize")
    assert "enqueue" not in CALLS[:first]
    assert CALLS[first + 1] == "configure (2, 3, 4, 4) (2, 3, 4, 4)..(2, 3, 4, 4)"
    assert CALLS.count("destroy") == CALLS.count("clone")
    x = np.ones((2, 3, 4, 4), np.float32)
    creator = type("C", (NotedCreator,), {"plugin_class": Linear3})()
    np.testing.assert_array_equal(run_plan(plan, [v2.adapt_creator(creator)], [x])[0], x * 2)


def test_the_run_time_initialises_the_engine_object_once_for_all_contexts() -> None:
    plan = build(NotedPlugin(3.0))
    CALLS.clear()
    engine = load(plan, NotedCreator())
    assert CALLS == ["deserialize", "initialize"]
    CALLS.clear()
    first, second = engine.create_execution_context(), engine.create_execution_context()
    assert CALLS == ["clone", "attach"] * 2
    CALLS.clear()
    np.testing.assert_array_equal(first.run([X])[0], X * 3)
    np.testing.assert_array_equal(second.run([X[:1]])[0], X[:1] * 3)
    np.testing.assert_array_equal(first.run([X])[0], X * 3)
    assert [
        *("configure (2, 3) (2, 3)..(2, 3)", "enqueue"),
        *("configure (1, 3) (1, 3)..(1, 3)", "enqueue"),
        "enqueue",
    ] == CALLS
    CALLS.clear()
    first.close()
    second.close()
    assert CALLS == ["detach", "destroy"] * 2
    CALLS.clear()
    engine.close()
    assert CALLS == ["terminate", "destroy"]


def test_the_context_gives_its_allocator() -> None:
    engine = load(build(NotedPlugin()), NotedCreator())
    seen: list[Any] = []

    class Watching(NotedPlugin):
        def attach_to_context(self, cudnn: Any, cublas: Any, allocator: Any) -> None:
            seen.append(allocator)

    engine.close()
    creator = type("C", (NotedCreator,), {"plugin_class": Watching})()
    with load(build(Watching()), creator) as engine:
        seen.clear()
        context = engine.create_execution_context()
        assert isinstance(seen[0], dt.IGpuAllocator)
        address = seen[0].allocate(64, 256, 0)
        assert address % 256 == 0
        assert seen[0].deallocate(address)
        context.close()


def test_a_plan_runs_in_a_fresh_process(tmp_path: Path) -> None:
    plan = tmp_path / "noted.plan"
    plan.write_bytes(build(NotedPlugin(5.0)))
    script = (
        "import sys, numpy as np, dovetail as dt\n"
        "from dovetail_tensorrt import v2\n"
        "from tests.tensorrt.v2.noted import NotedCreator\n"
        "runtime = dt.Runtime()\n"
        "runtime.get_plugin_registry().register_creator(v2.adapt_creator(NotedCreator()))\n"
        "with runtime.load_engine(sys.argv[1]) as engine:\n"
        "    print(engine(np.ones((2, 3), np.float32)).sum())\n"
        "assert not {'onnx', 'onnx_ir', 'libcst'} & set(sys.modules)\n"
    )
    found = subprocess.run([sys.executable, "-c", script, str(plan)], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout.strip()) == (0, "30.0"), found.stderr


def test_batches_that_differ_are_refused() -> None:
    class Add(v2.IPluginV2IOExt):
        plugin_type, plugin_version, num_outputs = "Noted", "1", 1

        def get_output_shape(self, index: int, input_shapes: Any) -> Any:
            return input_shapes[0]

        def get_output_data_type(self, index: int, input_types: Any) -> Any:
            return input_types[0]

        def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
            return bool(in_out[pos].format == dt.TensorFormat.LINEAR and len(in_out[pos].dims) == 1)

        def configure_plugin(self, in_: Any, out: Any) -> None:
            assert [tuple(desc.dims) for desc in (*in_, *out)] == [(3,)] * 3

        def execute_async(self, batch_size: int, *rest: Any) -> Any:
            return 7

        def serialize(self) -> bytes:
            return b""

        def clone(self) -> Any:
            return Add()

    file = PluginFile("add", "", ((2, 3), (2, 3)), lambda x, y: (x + y,))
    with pytest.raises(dt.PluginError, match=r"layer '.*enqueue returned status 7"):
        build_plan(file, lambda network, inputs: network.add_plugin_v2(inputs, Add()))

    def switch_off(config: Any) -> None:
        config.run_plugins = False

    plan = build_plan(file, lambda network, inputs: network.add_plugin_v2(inputs, Add()), config=switch_off)
    creator = type("C", (NotedCreator,), {"deserialize_plugin": lambda self, name, data: Add()})()
    with load(plan, creator) as engine:
        with pytest.raises(dt.PluginError, match="the inputs have different batches"):
            engine(X, X[:1])
        with pytest.raises(dt.PluginError, match="enqueue returned status 7"):
            engine(X, X)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"initialize": lambda self: 3}, "initialize returned status 3"),
        ({"initialize": lambda self: 1 / 0}, "ZeroDivisionError"),
        ({"enqueue": lambda self, *args: 4}, "enqueue returned status 4"),
        ({"clone": lambda self: None}, "clone returned None"),
        ({"clone": lambda self: self}, "clone returned the object itself"),
        ({"get_serialization_size": lambda self: 1}, "serialize gave 3 bytes and get_serialization_size says 1"),
        ({"serialize": lambda self: 5}, "serialize gave no bytes"),
        ({"get_output_dimensions": lambda self, *args: [3]}, "is not a dimension expression"),
    ],
)
def test_failures_name_the_callback(changes: dict[str, Any], message: str) -> None:
    broken = type("Broken", (NotedPlugin,), changes)
    creator = type("C", (NotedCreator,), {"plugin_class": broken})()
    with pytest.raises(dt.DovetailError, match=message):
        load(build(broken()), creator)(X)


def test_failures_name_the_line_of_the_plugin() -> None:
    class Failing(NotedPlugin):
        def enqueue(self, *args: Any) -> Any:
            raise ValueError("no")

    creator = type("C", (NotedCreator,), {"plugin_class": Failing})()
    with pytest.raises(dt.PluginError, match=r"\(Failing\), .*test_order\.py:\d+: enqueue raised ValueError: no"):
        load(build(Failing()), creator)(X)


def test_a_plugin_that_says_it_has_no_bytes_needs_no_serialize() -> None:
    silent = {"get_serialization_size": lambda self: 0, "serialize": v2.IPluginV2DynamicExt.serialize}
    plugin_class = type("Silent", (NotedPlugin,), silent)
    creator = type(
        "C", (NotedCreator,), {"deserialize_plugin": lambda self, name, data: plugin_class(float(len(data)))}
    )()
    with load(build(plugin_class()), creator) as engine:
        np.testing.assert_array_equal(engine(X), X * 0)


def test_a_creator_that_makes_nothing_is_named() -> None:
    creator = type("C", (NotedCreator,), {"deserialize_plugin": lambda self, name, data: None})()
    with pytest.raises(dt.PluginError, match="deserialize_plugin returned None"):
        load(build(NotedPlugin()), creator)
    adapted = v2.adapt_creator(creator)
    with pytest.raises(dt.PluginError, match="expected a field 'serialized_plugin_v2', got no fields"):
        adapted.create_plugin("x", dt.PluginFieldCollection([]), dt.TensorRTPhase.RUNTIME)


def test_every_step_of_the_end_is_taken_when_one_fails() -> None:
    class Failing(NotedPlugin):
        def detach_from_context(self) -> None:
            raise ValueError("no")

    adapted = v2.adapt_plugin(Failing()).attach_to_context(dt.IPluginResourceContext())
    adapted.ensure_initialized()
    CALLS.clear()
    with pytest.raises(ValueError, match="no"):
        adapted.destroy()
    assert CALLS == ["terminate", "destroy"]
    adapted.destroy()
    assert CALLS == ["terminate", "destroy"]


def test_dimensions_that_vary_are_refused_by_interfaces_without_the_batch() -> None:
    from tests.tensorrt.v2_files import import_file

    clip = next(file for file in FILES if file.name == "clip_v2")
    plugin = import_file(clip.path).ClipPlugin(0.0, 1.0)
    network = dt.Builder().create_network()
    x = network.add_input("x", dt.float32, (-1, -1))
    layer = network.add_plugin_v2([x], plugin)
    with pytest.raises(dt.PluginError, match="dimension 1 of input 0 varies"):
        _ = layer.get_output(0).shape


def test_what_is_no_v2_plugin_is_refused() -> None:
    with pytest.raises(dt.PluginError, match="the object is no V2 plugin"):
        v2.adapt_plugin(3)  # type: ignore[arg-type]


def test_missing_members_say_so() -> None:
    plugin = v2.IPluginV2DynamicExt()
    with pytest.raises(AttributeError, match=r"IPluginV2DynamicExt.plugin_type not initialized: set self.plugin_type"):
        _ = plugin.plugin_type
    with pytest.raises(NotImplementedError, match=r"IPluginV2DynamicExt must implement serialize\(\)"):
        plugin.serialize()
    assert plugin.tensorrt_version == 110100
    assert plugin.FORMAT_COMBINATION_LIMIT == 100
    assert [(m.name, m.value) for m in v2.PluginCreatorVersion] == [("V1", 0), ("V1_PYTHON", 64)]
