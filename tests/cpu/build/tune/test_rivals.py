"""Whole assignments against each other: the faster one is kept, and the plan says why."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dovetail as dt
from dovetail.build import builder as builder_module
from dovetail.build.config import BuilderConfig
from dovetail.build.tune.cache import TimingValue
from dovetail.cli import main
from dovetail.errors import BuildError, UsageError
from dovetail.runtime.engine import Engine
from dovetail.testing import host_device
from dovetail.testing.host_functions import HostDeviceFunction
from tests.support.plugins import PlainCreator, ScalePlugin

X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


def _model(*ops: str, shape: tuple[int | str, ...] = (2, 4), kind: int = TensorProto.FLOAT) -> onnx.ModelProto:
    names = ["x", *(f"t{i}" for i in range(len(ops) - 1)), "y"]
    nodes = [helper.make_node(op, [a], [b], name=f"{op}_{b}") for op, a, b in zip(ops, names, names[1:], strict=False)]
    ends = [[helper.make_tensor_value_info(name, kind, shape)] for name in ("x", "y")]
    return helper.make_model(
        helper.make_graph(nodes, "net", *ends), opset_imports=[helper.make_opsetid("", 20)], ir_version=10
    )


def _convolutions() -> onnx.ModelProto:
    """Many times faster in ONNX Runtime than in NumPy."""
    rng = np.random.default_rng(0)
    weight = onnx.numpy_helper.from_array(rng.standard_normal((8, 8, 3, 3)).astype(np.float32) / 8, "w")
    nodes = [
        helper.make_node("Conv", [f"t{i}", "w"], [f"t{i + 1}"], name=f"conv{i}", pads=[1, 1, 1, 1]) for i in range(6)
    ]
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, (4, 8, 48, 48))] for name in ("t0", "t6")]
    return helper.make_model(
        helper.make_graph(nodes, "net", *ends, [weight]), opset_imports=[helper.make_opsetid("", 20)], ir_version=10
    )


def _providers(engine: dt.Engine) -> set[str]:
    return {step.provider for step in engine.manifest.programs[0].steps if step.kind != "copy"}


def _note(engine: dt.Engine) -> str:
    return engine.manifest.build["rivals"]


def test_onnxruntime_wins_where_it_is_faster_whatever_the_order() -> None:
    for order in (["onnxruntime", "cpu"], ["cpu", "onnxruntime"]):
        with dt.compile(_convolutions(), providers=order, rivals=True) as engine:
            assert _providers(engine) == {"onnxruntime"}
            assert _note(engine).endswith(": onnxruntime")
            assert "cpu" in _note(engine)
            assert " ms" in _note(engine)


def test_without_rivals_the_order_decides_and_nothing_is_noted() -> None:
    with host_device(work_s=0.003), dt.compile(_model("Relu"), providers=["host_device", "cpu"]) as engine:
        assert _providers(engine) == {"host_device"}
        assert "rivals" not in engine.manifest.build


def test_a_slow_device_loses_although_it_comes_first() -> None:
    with host_device(work_s=0.003), dt.compile(_model("Relu", "Exp"), providers=["host_device"], rivals=True) as alone:
        assert _providers(alone) == {"host_device"}
    with host_device(work_s=0.003):
        engine = dt.compile(_model("Relu", "Exp"), providers=["host_device", "cpu"], rivals=True)
    assert _providers(engine) == {"cpu"}
    np.testing.assert_allclose(engine(X), np.exp(np.maximum(X, 0)), rtol=1e-6)
    (table,) = engine.manifest.tuning
    assert [(row.name, row.status, row.chosen) for row in table.candidates] == [
        ("host_device, cpu", "timed", False),
        ("cpu, host_device", "timed", True),
    ]


def test_what_the_first_cannot_take_goes_to_the_others() -> None:
    with host_device(name="quick", ops=["Relu"]), host_device(name="slow", work_s=0.003):
        engine = dt.compile(_model("Relu", "Exp"), providers=["slow", "quick", "cpu"], rivals=True)
    names = [row.name for row in engine.manifest.tuning[0].candidates]
    assert names == ["slow, quick, cpu", "quick, slow, cpu", "cpu, slow, quick"]
    assert _providers(engine) == {"cpu"}


def test_the_host_runs_what_no_rival_takes() -> None:
    with host_device(name="quick", ops=["Relu"]), host_device(name="slow", ops=["Relu"], work_s=0.003):
        engine = dt.compile(_model("Relu", "Exp"), providers=["slow", "quick"], rivals=True)
        assert _providers(engine) == {"quick", "cpu"}
        assert _note(engine).endswith(": quick")


def test_equal_assignments_are_timed_once() -> None:
    with host_device(ops=["Sin"]), dt.compile(_model("Relu"), providers=["host_device", "cpu"], rivals=True) as engine:
        assert _note(engine) == "nothing to time: cpu the same as host_device"
        assert not engine.manifest.tuning


def _cached(times_us: dict[str, float]) -> dt.Engine:
    """An engine of a build whose timing cache says how long each assignment takes."""
    config, cache = BuilderConfig(), dt.ITimingCache()
    config.set_timing_cache(cache)
    with host_device():
        model = _model("Relu")
        dt.compile(model, providers=["host_device", "cpu"], rivals=True, config=config).close()
        keys = {("host_device" if "host_device" in key else "cpu"): key for key in cache.query_keys()}
        assert len(keys) == len(cache.query_keys()) == 2
        for name, time_us in times_us.items():
            cache.update(keys[name], TimingValue(time_us=time_us))
        config.set_flag(dt.BuilderFlag.ERROR_ON_TIMING_CACHE_MISS)
        return dt.compile(model, providers=["host_device", "cpu"], rivals=True, config=config)


def test_timings_are_kept_and_ties_go_to_the_first_of_the_order() -> None:
    tied = _cached({"host_device": 1019.0, "cpu": 1000.0})
    assert _note(tied) == "host_device 1.02 ms, cpu 1 ms: host_device"
    beaten = _cached({"host_device": 1021.0, "cpu": 1000.0})
    assert _note(beaten) == "host_device 1.02 ms, cpu 1 ms: cpu"


def test_a_miss_is_an_error_where_it_was_asked_for() -> None:
    config = BuilderConfig()
    config.set_flag(dt.BuilderFlag.ERROR_ON_TIMING_CACHE_MISS)
    with host_device(), pytest.raises(dt.TimingCacheError, match="the whole network"):
        dt.compile(_model("Relu"), providers=["host_device", "cpu"], rivals=True, config=config)


def test_one_engine_is_open_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Engine] = []
    closed: list[Engine] = []
    open_engine, close = builder_module._open_engine, Engine.close

    def watch_open(*args: Any) -> Engine:
        assert len(opened) == len(closed)
        opened.append(open_engine(*args))
        return opened[-1]

    def watch_close(self: Engine) -> None:
        closed.append(self)
        close(self)

    monkeypatch.setattr(builder_module, "_open_engine", watch_open)
    monkeypatch.setattr(Engine, "close", watch_close)
    plan = dt.Builder().build_plan(_rivals_network(), _rivals_config(), is_open=False)
    assert plan.manifest.build["rivals"]
    assert len(opened) == len(closed) > 2


def _rivals_network() -> dt.INetworkDefinition:
    network = dt.Builder().create_network()
    layer = network.add_activation(network.add_input("x", dt.float32, (2, 4)), dt.ActivationType.RELU)
    network.mark_output(layer.get_output(0))
    return network


def _rivals_config(*providers: str) -> BuilderConfig:
    config = BuilderConfig()
    config.providers, config.rivals = list(providers or ("onnxruntime", "cpu")), True
    return config


def test_no_threads_are_left_behind() -> None:
    tasks = Path("/proc/self/task")
    if not tasks.is_dir():
        pytest.skip("counts threads as Linux does")
    config = _rivals_config()
    config.provider_options = {"onnxruntime": {"threads": "4"}}
    before = len(list(tasks.iterdir()))
    dt.Builder().build_plan(_rivals_network(), config)
    assert len(list(tasks.iterdir())) <= before


def test_results_that_differ_are_told_and_the_first_of_the_order_is_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compute = HostDeviceFunction._compute
    monkeypatch.setattr(HostDeviceFunction, "_compute", lambda self, inputs: (compute(self, inputs)[0] + 1,))
    with host_device():
        engine = dt.compile(_model("Relu"), providers=["host_device", "cpu"], rivals=True)
        assert _providers(engine) == {"host_device"}
        assert "cpu" in _note(engine)
        assert "wrong (disagrees with the default" in _note(engine)
        with pytest.raises(BuildError, match="disagree"):
            dt.compile(_model("Relu"), providers=["host_device", "cpu"], rivals=True, strict=True)


def test_a_rival_that_fails_is_out() -> None:
    with host_device(raises_in=["load_kernel"]):
        engine = dt.compile(_model("Relu"), providers=["host_device", "cpu"], rivals=True)
    assert _providers(engine) == {"cpu"}
    assert "host_device failed" in _note(engine)
    assert "told to fail in load_kernel" in _note(engine)


def test_every_profile_counts_and_shape_inputs_get_what_they_are_tuned_for() -> None:
    model = _model("Relu", shape=("n", 4))
    with host_device(work_s=0.002):
        profiles = [{"x": (2, 4)}, {"x": (8, 4)}]
        engine = dt.compile(model, providers=["host_device", "cpu"], rivals=True, profiles=profiles)
    slow = engine.manifest.tuning[0].candidates[0]
    assert slow.time_us is not None
    assert slow.time_us >= 4000


def test_sizes_that_nobody_set_are_told() -> None:
    model = _model("Relu", shape=("n", 4))
    with host_device(), pytest.raises(dt.DovetailError, match="nobody set dimension 0"):
        dt.compile(model, providers=["host_device", "cpu"], rivals=True, strict=True)


def test_inputs_that_cannot_be_made_up_are_told() -> None:
    config = _rivals_config("onnxruntime", "cpu")
    with pytest.raises(BuildError, match="input 'x'") as caught:
        dt.compile(_model("Identity", "StringNormalizer", shape=(3,), kind=TensorProto.STRING), config=config)
    assert "got tensor(string)" in str(caught.value)


class TwoTactics(ScalePlugin):
    """The second tactic is slow, so only a race runs it."""

    formats = (dt.TensorFormat.LINEAR,)
    types = (dt.float32,)
    slow_runs = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.timing_cache_id = "two"

    def enqueue(self, *args: Any) -> None:
        super().enqueue(*args)
        if self.tactic == 2:
            type(self).slow_runs += 1
            time.sleep(0.004)


def _compile_plugin(*, rivals: bool) -> dt.Engine:
    TwoTactics.slow_runs = 0
    network = dt.Builder().create_network()
    scaled = network.add_plugin_v3([network.add_input("x", dt.float32, (2, 4))], [], TwoTactics())
    relu = network.add_activation(scaled.get_output(0), dt.ActivationType.RELU)
    network.mark_output(relu.get_output(0))
    registry = dt.PluginRegistry()
    registry.register_creator(PlainCreator("TestScale", TwoTactics), "")
    config = _rivals_config("host_device", "cpu")
    config.rivals = rivals
    with host_device(work_s=0.003):
        return dt.compile(network, config=config, registry=registry)


def test_plugin_layers_are_tuned_once_for_all_assignments() -> None:
    _compile_plugin(rivals=False)
    alone = TwoTactics.slow_runs
    engine = _compile_plugin(rivals=True)
    assert 0 < TwoTactics.slow_runs < 2 * alone
    assert [table.name for table in engine.manifest.tuning][-1] == "the whole network"
    np.testing.assert_array_equal(engine(X), np.maximum(X * 2, 0))


def test_a_stripped_plan_is_timed_with_its_weights() -> None:
    config = _rivals_config("onnxruntime", "cpu")
    config.set_flag(dt.BuilderFlag.REFIT)
    config.set_flag(dt.BuilderFlag.STRIP_PLAN)
    plan = dt.Builder().build_plan(_network_with_weight(), config)
    assert plan.manifest.build["rivals"].endswith((": onnxruntime", ": cpu"))
    assert any(blob.stripped for blob in plan.manifest.blobs.values())


def _network_with_weight() -> dt.INetworkDefinition:
    network = dt.Builder().create_network()
    weight = network.add_constant((4, 4), np.arange(16, dtype=np.float32).reshape(4, 4))
    x = network.add_input("x", dt.float32, (2, 4))
    product = network.add_matrix_multiply(
        x, dt.MatrixOperation.NONE, weight.get_output(0), dt.MatrixOperation.NONE
    ).get_output(0)
    network.mark_output(product)
    return network


def test_with_one_provider_the_setting_is_told_to_be_idle() -> None:
    with pytest.raises(UsageError, match="rivals has no effect: 'cpu' is the only provider"):
        dt.compile(_model("Relu"), providers=["cpu"], rivals=True, strict=True)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(_convolutions(), tmp_path / "net.onnx")
    plan = str(tmp_path / "net.plan")
    assert main(["build", str(tmp_path / "net.onnx"), "-o", plan, "--rivals"]) == 0
    assert "rivals: onnxruntime" in capsys.readouterr().out
    assert main(["inspect", plan, "--tuning"]) == 0
    shown = capsys.readouterr().out
    assert "rivals" in shown
    assert "cpu, onnxruntime" in shown
