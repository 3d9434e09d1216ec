"""The provider over a device of paper: options, claims, memory, the contract's own kit, and what it refuses."""

from __future__ import annotations

import ctypes
import gc
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail
from dovetail.errors import DeviceMissingError, DovetailError, InputError, ProviderError
from dovetail.loggers import ILogger
from dovetail.plugin.check import check_plugin
from dovetail.provider.loader import get_default_options
from dovetail.provider.schemas.schema_check import check_registry
from dovetail.testing import check_provider
from dovetail.tools.plugin_device import PluginDevice
from dovetail_cuda.options import OPTIONS, CudaOptions, parse_options
from dovetail_cuda.run.driver import Driver, Launch, Parameters
from tests.cuda.host.fake_provider import fake_cuda, make_factory
from tests.cuda.host.interpreter import compile_fake
from tests.cuda.host.test_compile import _request
from tests.cuda.models import make_block, make_mlp
from tests.support.plugins import ScalePlugin

HEAD = '<ir_version: 10, opset_import: ["" : 21]> g '


class Listener(ILogger):
    """Keeps every message."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def log(self, severity: Any, msg: str) -> None:
        self.told.append(msg)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_kit_finds_nothing_wrong(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = make_block(batch=1, length=4, width=8, heads=2)
    x = np.random.default_rng(1).standard_normal((1, 4, 8)).astype(np.float32)
    report = check_provider(make_factory(), model=model, inputs={"x": x})
    report.raise_for_failures()
    assert report.outcome("P39").status == "passed"  # results of that model
    assert report.outcome("P71").status == "passed"  # replays


def test_every_operator_agrees_with_its_schema(paper: Any) -> None:
    provider, _ = paper
    assert list(check_registry(provider.kernels)) == []


# options


def test_every_option_is_read() -> None:
    texts = {name: spec.default or "3" for name, spec in OPTIONS.items()} | {"tuned_shapes": "n=3, m=4; n=5"}
    assert parse_options(texts).tuned_shapes == ({"n": 3, "m": 4}, {"n": 5})
    assert parse_options(texts).device_id == 3
    parsed = parse_options({**texts, "use_tf32": "false", "user_compute_stream": "0x10", "arena.max_mem": "4096"})
    assert (parsed.use_tf32, parsed.user_compute_stream, parsed.arena_max_mem) == (False, 16, 4096)
    assert parse_options({}) == CudaOptions()


def test_the_readme_has_every_option() -> None:
    text = Path(__file__).parents[3].joinpath("packages", "dovetail-cuda", "README.md").read_text(encoding="utf-8")
    assert [name for name in OPTIONS if f"`{name}`" not in text] == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("use_tf32", "maybe"),
        ("tuned_shapes", "n"),
        ("tuned_shapes", "=3"),
        ("tuned_shapes", "n=0"),
        ("arena.max_mem", "-1"),
        ("device_id", "first"),
    ],
)
def test_a_malformed_value_is_told_and_the_default_used(name: str, text: str) -> None:
    parsed = parse_options({name: text})
    assert parsed == CudaOptions()
    (told,) = parsed.warnings
    assert told.startswith(f"option {name} has no value '{text}'; the default is used")


def test_every_build_and_every_engine_tells_its_logger_of_options(paper: Any, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(HEAD + "(float[4,5] x) => (float[4,5] y) { a = Exp(x) y = Neg(a) }")
    options = {"cuda": {**get_default_options("cuda"), "use_tf32": "maybe"}}
    path = tmp_path / "net.plan"
    for _ in range(2):
        config, built, loaded = dovetail.BuilderConfig(), Listener(), Listener()
        config.provider_options = options
        dovetail.compile(model, providers=["cuda", "cpu"], config=config, logger=built).save(str(path))
        dovetail.load(str(path), provider_options=options, logger=loaded)
        for listener in (built, loaded):
            (told,) = [text for text in listener.told if "use_tf32" in text]
            assert told.startswith("provider 'cuda': option use_tf32 has no value 'maybe'")


def test_options_of_onnxruntime_are_known() -> None:
    assert parse_options({"cudnn_conv_algo": "0", "do_copy_in_default_stream": "1"}) == CudaOptions()
    (told,) = parse_options({"fuse_conv_bias": "1"}).warnings
    assert told.startswith("option fuse_conv_bias changes nothing here: a bias is always part of")
    assert parse_options({"cudnn_conv_algo": "1"}).cudnn_conv_algo_search == "HEURISTIC"
    (told,) = parse_options({"prefer_nhwc_layout": "maybe"}).warnings
    assert told.startswith("option prefer_nhwc_layout has no value 'maybe'")
    alone = parse_options({"gpu_external_alloc": "0x10"})
    assert not alone.has_external_allocator
    assert alone.warnings[0].startswith("gpu_external_alloc and gpu_external_free belong together")


def test_a_stream_that_is_promised_must_be_given() -> None:
    with pytest.raises(ProviderError, match="has_user_compute_stream is set, and there is no stream of the caller"):
        parse_options({"has_user_compute_stream": "1"})
    assert parse_options({"has_user_compute_stream": "1", "user_compute_stream": "16"}).user_compute_stream == 16


@pytest.mark.parametrize(
    ("bits", "kinds"), [("0", {True, False}), ("16", {False}), ("3", {True}), ("17", {True, False})]
)
def test_bits_choose_how_attention_is_computed(bits: str, kinds: set[bool]) -> None:
    options = parse_options({"sdpa_kernel": bits})
    assert {True} & kinds == ({True} if options.allows_one_kernel else set())
    assert {False} & kinds == ({False} if options.allows_steps else set())


def test_options_that_exclude_each_other_are_refused() -> None:
    texts = {"gpu_external_alloc": "1", "gpu_external_free": "1", "user_compute_stream": "0"}
    with pytest.raises(ProviderError, match="exclude each other"):
        parse_options(texts)


def test_an_option_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ProviderError, match=r"unknown option\(s\) use_tf23; expected device_id"):
        parse_options({"use_tf23": "1"})


def test_a_device_that_is_not_here_is_an_error() -> None:
    factory = make_factory(num_devices=2)
    first = factory.devices()[0]
    assert factory.create(first, {"device_id": "1"}).id == "cuda:1"
    for ordinal in ("7", "-1"):
        with pytest.raises(DeviceMissingError, match=f"there is no such device; expected 0, 1, got {ordinal}"):
            factory.create(first, {"device_id": ordinal})


def test_after_a_fork_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = SimpleNamespace(cuCtxSetCurrent=lambda context: (3,), cuInit=lambda flags: (3,))
    monkeypatch.setattr("dovetail_cuda.run.driver._cuda", lambda: lost)
    for ask in (lambda: Driver().use_context(1), Driver().count_devices):
        with pytest.raises(ProviderError, match=r"does not survive a fork\n  fix: start processes with 'spawn'"):
            ask()


def _describe_array(address: int) -> Any:
    facts = {"shape": (4, 5), "typestr": "<f4", "data": (address, False), "version": 3}
    return SimpleNamespace(__cuda_array_interface__=facts)


def test_arrays_that_do_not_lie_on_the_device_are_refused_before_anything_is_launched(paper: Any) -> None:
    model = onnx.parser.parse_model(HEAD + "(float[4,5] x) => (float[4,5] y) { a = Exp(x) y = Neg(a) }")
    engine = dovetail.compile(model, providers=["cuda", "cpu"])
    launched = list(paper[1].launched)
    with pytest.raises(InputError, match=r"input 'x': its memory is at address 0; got \(4, 5\) of float32"):
        engine(_describe_array(0))
    x = np.zeros((4, 5), np.float32)
    with pytest.raises(InputError, match=r"input 'x': its memory is not of the device .* no memory of a device"):
        engine(_describe_array(x.ctypes.data))
    context = engine.create_execution_context()
    for name in ("x", "y"):
        context.set_tensor_address(name, 0)
    with pytest.raises(InputError, match="tensor 'x': a null address was bound"):
        context.execute_async_v3(0)
    assert paper[1].launched == launched
    np.testing.assert_array_equal(engine(x), -np.exp(x))


def test_a_plugin_is_checked_over_memory_and_stream_of_the_device(paper: Any) -> None:
    driver = paper[1]

    class OnPaper(ScalePlugin):
        formats, types, tactics = (dovetail.TensorFormat.LINEAR,), (dovetail.float32,), (1,)
        preferred_memory = "cuda"

        def note(self, method: str, detail: Any = None) -> None:
            pass

        def enqueue(self, in_desc: Any, out_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> None:
            source, target = (driver.view(each[0], tuple(in_desc[0].dims), np.float32) for each in (inputs, outputs))
            driver._submit(stream, "kernel", lambda: np.multiply(source, self.factor, out=target))

    report = check_plugin(lambda: OnPaper(3.0), shapes=["2x3"], device=PluginDevice("cuda"), isolate=False)
    assert report.ok, str(report)
    assert not any("checked on the host" in note for note in report.notes)


@pytest.mark.skipif(Driver().count_devices() > 0, reason="there is a device")
def test_a_missing_device_is_a_missing_resource_for_the_command_line(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(HEAD + "(float[4,5] x) => (float[4,5] y) { y = Neg(x) }")
    onnx.save(model, tmp_path / "net.onnx")
    command = [sys.executable, "-m", "dovetail", "run", str(tmp_path / "net.onnx"), "--providers", "cuda,cpu"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (6, ""), done.stderr
    assert "error: provider 'cuda': it finds no device here" in done.stderr


def test_devices_say_what_they_are() -> None:
    (device,) = make_factory().devices()
    assert (device.kind, device.ordinal, device.memory_bytes) == ("gpu", 0, 1 << 30)
    assert device.properties["compute_capability"] == "9.0"


# what it takes


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(float[3] x) => (int64[1,M] y) { n = NonZero(x) y = Neg(n) }", "the shape of input 0 must be known"),
        ("(float[3] x, int64[1] s) => (float[M] y) { y = Reshape(x, s) }", "input 1 must be known"),
        ("(float[3,3] x) => (float y) { y = Det(x) }", "no kernel"),
        (
            "(float[1,1,4] x) => (float[1,1,3] y, int64[1,1,3] i) { y, i = MaxPool<kernel_shape=[2]>(x) }",
            "where the largest",
        ),
    ],
)
def test_what_it_refuses_runs_elsewhere_and_is_reported(paper: Any, text: str, reason: str) -> None:
    messages: list[str] = []

    class Logger(dovetail.ILogger):
        def log(self, severity: Any, message: str) -> None:
            messages.append(message)

    model = onnx.parser.parse_model(HEAD + text)
    engine = dovetail.compile(model, providers=["cuda"], logger=Logger())
    assert {step.provider for step in engine.manifest.programs[0].steps if step.kind != "copy"} == {"cpu"}
    assert any(reason in message for message in messages), messages


def test_nodes_whose_weights_are_beyond_the_limit_of_memory_go_to_the_next_provider(paper: Any) -> None:
    model, x = make_mlp(rows=4, width=64), np.ones((4, 64), np.float32)
    config = dovetail.BuilderConfig()
    config.provider_options = {"cuda": {"arena.max_mem": "45000"}}
    engine = dovetail.compile(model, providers=["cuda", "cpu"], config=config)
    steps = [step for step in engine.manifest.programs[0].steps if step.kind != "copy"]
    assert [step.provider for step in steps][:2] == ["cuda", "cpu"]
    assert any("its budget of 45000 bytes is used up" in note.text for note in engine.manifest.notes)
    np.testing.assert_allclose(engine(x), dovetail.compile(model, providers=["cpu"])(x), rtol=1e-5, atol=1e-5)


# a build that is interrupted


@pytest.mark.usefixtures("ctrl_c")
def test_after_ctrl_c_in_a_build_everything_is_back_and_the_next_build_works(
    paper: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, driver = paper
    model, compile_kernel = make_block(batch=1, length=4, width=8, heads=2), provider._toolbox.compile
    calls: list[Any] = []

    def interrupt(request: Any) -> Any:
        calls.append(request)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return compile_kernel(request)

    monkeypatch.setattr(provider._toolbox, "compile", interrupt)
    with pytest.raises(KeyboardInterrupt):
        dovetail.compile(model, providers=["cuda"])
    gc.collect()
    provider._gpu.release_now()
    assert not driver.sizes
    assert dovetail.compile(model, providers=["cuda"])(np.ones((1, 4, 8), np.float32)).shape == (1, 4, 8)


def test_without_memory_a_build_ends_with_one_message_and_the_process_goes_on(tmp_path: Any) -> None:
    with fake_cuda(str(tmp_path), memory_bytes=1 << 21) as (provider, driver):
        large = onnx.parser.parse_model(
            HEAD + "(float[1] x) => (float[1048576] y) { s = Constant<value=int64[1]{1048576}>() y = Expand(x, s) }"
        )
        small = onnx.parser.parse_model(HEAD + "(float[4] x) => (float[4] y) { y = Relu(x) }")
        with pytest.raises(DovetailError, match="no memory for 4194560 bytes"):
            dovetail.compile(large, providers=["cuda"])(np.ones(1, np.float32))
        gc.collect()
        provider._gpu.release_now()
        assert not driver.sizes
        assert dovetail.compile(small, providers=["cuda"])(np.full(4, -1, np.float32)).tolist() == [0] * 4


# memory and launches


def test_an_arena_takes_the_place_of_the_pool() -> None:
    factory = make_factory()
    options = {"arena.use_cuda_mempool": "0", "arena.max_mem": str(4 << 20), "arena.initial_chunk_size_bytes": "65536"}
    allocator = factory.create(factory.devices()[0], options).allocator
    first = allocator.allocate(1000, 256, 0)
    assert first
    assert not allocator.allocate(8 << 20, 256, 0)
    assert allocator.deallocate(first)
    assert not allocator.deallocate(first)


def test_a_launch_over_memory_that_is_not_there_is_seen(paper: Any) -> None:
    provider, driver = paper
    stream = provider.create_stream()
    block = provider.allocator.allocate(256, 256, 0)
    library = driver.load_library(compile_fake(_request("tl.store(p0, 1.0)")).code)
    function = driver.find_function(library, "kernel", 0)
    launch = Launch(function=function, grid=(1, 1, 1), threads=128, shared_bytes=0)
    driver.launch(launch, Parameters([block]), stream.handle)
    stream.synchronize()
    assert ctypes.c_float.from_address(block).value == 1.0
    driver.launch(launch, Parameters([block + 512]), stream.handle)
    with pytest.raises(AssertionError, match="parameter p0 is not in memory of the device"):
        stream.synchronize()


def test_memory_that_comes_back_is_read_before_it_is_given_away(paper: Any) -> None:
    """Results that the runtime copies to the host and drops are still to be read by the copy."""
    provider, driver = paper
    stream, result = provider.create_stream(), np.zeros(64, np.float32)
    block = provider.allocator.allocate(256, 256, 0)
    provider.copy(np.ones(64, np.float32), provider.array_at(block, (64,), np.float32), None)
    provider.copy(provider.array_at(block, (64,), np.float32), result, stream)
    assert provider.allocator.deallocate(block)
    for _ in range(4):
        provider.allocator.allocate(256, 256, 0)
    stream.synchronize()
    assert (result == 1).all()
    assert len(driver.sizes) == 4


def test_memory_that_comes_back_while_a_stream_is_captured_is_kept_until_later(paper: Any) -> None:
    provider, driver = paper
    stream, block = provider.create_stream(), provider.allocator.allocate(256, 256, 0)
    provider.begin_capture(stream)
    assert provider.allocator.deallocate(block)
    assert block in driver.sizes
    provider.end_capture(stream).close()
    provider.allocator.allocate(256, 256, 0)
    assert len(driver.sizes) == 1


def test_an_engine_that_is_closed_leaves_no_memory_behind(paper: Any) -> None:
    provider, driver = paper
    model = make_block(batch=1, length=4, width=8, heads=2)
    before = dict(driver.sizes)
    with dovetail.compile(model, providers=["cuda", "cpu"]) as engine:
        engine(np.ones((1, 4, 8), np.float32))
        assert driver.libraries
    del engine
    gc.collect()
    provider.allocator.deallocate(provider.allocator.allocate(1, 1, 0))  # what waits is given back then
    assert driver.sizes == before
    assert not driver.libraries


def test_running_imports_nothing_that_builds() -> None:
    code = (
        "import sys; import dovetail_cuda.provider; "
        "print([n for n in sys.modules if n.partition('.')[0] in ('triton', 'onnx', 'onnx_ir', 'torch', 'cuda') or "
        "n.startswith(('dovetail_cuda.graph', 'dovetail_cuda.lower', 'dovetail_cuda.compile', 'dovetail_cuda.emit'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
