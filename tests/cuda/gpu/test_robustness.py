"""What goes wrong on a GPU goes wrong in one message, and the process goes on; what goes on for long stays as it is."""

from __future__ import annotations

import gc
import importlib.util
import os
import signal
import threading
import time
from typing import Any

import ml_dtypes  # noqa: F401
import numpy as np
import onnx
import pytest

import dovetail as dt
from dovetail.errors import DovetailError, ProviderError
from dovetail.provider.loader import get_provider
from tests.cuda.models import make_block, make_mlp

HEAD = '<ir_version: 10, opset_import: ["" : 21]> g '
X = np.random.default_rng(5).standard_normal((64, 256)).astype(np.float16)
NUM_RUNS = 10_000


def _compile(model: Any, **options: Any) -> Any:
    config = dt.BuilderConfig()
    config.providers = ["cuda", "cpu"]
    config.provider_options = {"cuda": options} if options else {}
    return dt.compile(model, config=config)


def _free_bytes(provider: Any) -> int:
    gc.collect()
    provider._gpu.release_now()
    return int(provider._gpu.driver.measure_free_bytes())


def test_out_of_memory_is_one_message_and_the_process_goes_on(cuda: Any) -> None:
    size = 1 << 38
    shape = f"s = Constant<value=int64[1]{{{size}}}>()"
    engine = _compile(
        onnx.parser.parse_model(f"{HEAD}(float[1] x) => (float[{size}] y) {{ {shape} y = Expand(x, s) }}")
    )
    with pytest.raises(DovetailError, match="no memory"):
        engine.create_execution_context().run([np.ones(1, np.float32)], keep_on_device=True)
    assert np.isfinite(_compile(make_mlp("float16", *X.shape))(X).astype(np.float32)).all()


def test_a_device_that_is_not_here_is_an_error(cuda: Any) -> None:
    with pytest.raises(ProviderError, match="it has no device 7 here"):
        get_provider("cuda:7")
    with pytest.raises(ProviderError, match="there is no such device"):
        get_provider("cuda", {"device_id": "7"})


def test_a_build_can_be_interrupted(cuda: Any, tmp_path: Any) -> None:
    model = make_block("float16", 1, 64, 256, heads=4, depth=2)
    timer = threading.Timer(0.7, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises((KeyboardInterrupt, dt.BuildCancelledError)):
        _compile(model, kernel_store=str(tmp_path))  # which takes longer than that
    x = np.ones((1, 64, 256), np.float16)
    assert _compile(model, kernel_store=str(tmp_path))(x).shape == x.shape


@pytest.mark.parametrize("use_pool", ["1", "0"])
def test_memory_does_not_grow(cuda: Any, use_pool: str, capsys: Any) -> None:
    engine = _compile(make_mlp("float16", *X.shape), **{"arena.use_cuda_mempool": use_pool})
    provider = engine.providers["cuda"]
    for _ in range(20):
        engine(X)
    before, start = _free_bytes(provider), time.perf_counter()
    expected = engine(X)
    for _ in range(NUM_RUNS):
        result = engine(X)
    took_us = (time.perf_counter() - start) / NUM_RUNS * 1e6
    assert np.array_equal(result, expected)
    assert abs(before - _free_bytes(provider)) <= 4 << 20
    with capsys.disabled():
        print(f"\n{NUM_RUNS} runs of {took_us:.1f} us, copies to and from the host included, pool {use_pool}")


def test_engines_come_and_go(cuda: Any) -> None:
    model = make_mlp("float16", *X.shape)
    _compile(model)(X)
    before = _free_bytes(cuda)
    for _ in range(10):
        with _compile(model) as engine:
            engine(X)
    del engine
    assert abs(before - _free_bytes(cuda)) <= 34 << 20  # the driver keeps some of what code took


def test_two_contexts_in_two_threads(cuda: Any) -> None:
    engine = _compile(make_mlp("float16", *X.shape))
    inputs = [X, X * np.float16(0.5)]
    expected = [engine(x) for x in inputs]
    wrong: list[str] = []

    def work(number: int) -> None:
        context = engine.create_execution_context()
        for step in range(500):
            (result,) = context.run([inputs[number]])
            if not np.array_equal(result, expected[number]):
                wrong.append(f"thread {number}, run {step}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_profiles_tell_the_time_of_every_launch(cuda: Any, capsys: Any) -> None:
    engine = _compile(make_block("float16", 1, 128, 768, heads=12, depth=2))
    (step,) = engine.manifest.programs[0].steps
    context = engine.create_execution_context()
    x = np.random.default_rng(1).standard_normal((1, 128, 768)).astype(np.float16)
    cuda.start_profiling()
    context.run([x])
    launched = cuda.stop_profiling()
    assert len(launched) >= len(step.partition.report.nodes)
    assert all(0 < event.duration_us < 1e4 and event.layer == step.name for event in launched)
    for _ in range(3):
        context.run([x])
    cuda.start_profiling()
    context.run([x])
    replayed = [event for event in cuda.stop_profiling() if event.layer]
    if importlib.util.find_spec("cupti") is None:
        assert not replayed  # only CUPTI sees into a graph
    else:
        assert [event.name for event in replayed] == [event.name for event in launched]
    with capsys.disabled():
        for kind, events in (("launched", launched), ("replayed", replayed)):
            slowest = sorted(events, key=lambda event: -event.duration_us)[:3]
            print(f"\n{kind}: {sum(event.duration_us for event in events):.1f} us in {len(events)} kernels", end="")
            print("".join(f"\n  {event.duration_us:.1f} us {event.name} ({event.kind})" for event in slowest))


class Raising:
    """Raises while it is armed, however often the tuner or the engine calls it."""

    def __init__(self, cuda: Any) -> None:
        self.is_armed = False
        self.has_raised_in_capture = False
        self._cuda = cuda

    def __call__(self) -> None:
        if self.is_armed:
            self.has_raised_in_capture |= self._cuda._gpu.is_capturing
            raise RuntimeError("told to fail")


def test_a_plugin_that_raises_in_a_capture(cuda: Any) -> None:
    pytest.importorskip("cupy", reason="needs CuPy")
    from tests.cuda.gpu.test_contract import CupyScale, CupyScaleCreator

    raising = Raising(cuda)

    class RaisingScale(CupyScale):
        def enqueue(self, *arguments: Any) -> None:
            super().enqueue(*arguments)
            raising()

    class Creator(CupyScaleCreator):
        def __init__(self) -> None:
            super().__init__()
            self.name = "TestRaisingScale"

        def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
            plugin = RaisingScale(2.0)
            plugin.plugin_name = "TestRaisingScale"
            return plugin

    dt.get_plugin_registry().register_creator(Creator())
    builder = dt.Builder()
    network = builder.create_network()
    given = network.add_activation(network.add_input("x", dt.float32, (4, 4)), dt.ActivationType.RELU).get_output(0)
    plugin = Creator().create_plugin("scale", None, None)
    layer = network.add_plugin_v3([given], [], plugin)
    layer.name = "scale"
    y = network.add_activation(layer.get_output(0), dt.ActivationType.RELU).get_output(0)
    network.mark_output(y)
    config = builder.create_builder_config()
    config.providers, config.layer_providers = ["cuda", "cpu"], {"scale": "cuda"}
    engine = dt.Runtime().deserialize_cuda_engine(builder.build_serialized_network(network, config))
    context, x = engine.create_execution_context(), np.ones((4, 4), np.float32)
    for _ in range(max(cuda.num_runs_before_capture, 1)):
        np.testing.assert_array_equal(context.run([x])[0], x * 2)
    raising.is_armed = True
    with pytest.raises(dt.PluginError, match="told to fail"):
        context.run([x])
    raising.is_armed = False
    assert raising.has_raised_in_capture
    for _ in range(3):
        np.testing.assert_array_equal(context.run([x])[0], x * 2)


@pytest.mark.parametrize("fault", ["raises", "nothing"])
def test_a_build_runs_a_plugin_on_the_device_and_fails_with_it(cuda: Any, fault: str) -> None:
    pytest.importorskip("cupy", reason="needs CuPy")
    from tests.cuda.gpu.test_contract import CupyScale

    seen: list[bool] = []

    class Faulty(CupyScale):
        def enqueue(self, input_desc: Any, output_desc: Any, *rest: Any) -> None:
            seen.append(bool(output_desc[0].is_on_device))
            if fault == "raises":
                raise RuntimeError("told to fail in the build")

    builder = dt.Builder()
    network = builder.create_network()
    layer = network.add_plugin_v3([network.add_input("x", dt.float32, (4, 4))], [], Faulty(2.0))
    layer.name = "scale"
    network.mark_output(layer.get_output(0))
    config = builder.create_builder_config()
    config.providers, config.layer_providers = ["cuda", "cpu"], {"scale": "cuda"}
    message = "told to fail in the build" if fault == "raises" else "wrote none of its outputs"
    with pytest.raises(dt.DovetailError, match=rf"layer 'scale'[\s\S]*{message}|{message}"):
        builder.build_serialized_network(network, config)
    assert seen
    assert all(seen)
