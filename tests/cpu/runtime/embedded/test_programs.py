"""Programs in C++ that run plans: what they are told, give, get and survive."""

from __future__ import annotations

import random
from pathlib import Path

from onnx import TensorProto, helper

import dovetail as dt
from dovetail.testing import host_device
from tests.cpu.runtime.embedded.conftest import make_model
from tests.support.native_libraries import Compile
from tests.support.native_programs import run_program


def test_tensors_are_described(driver: Path, plans: Path) -> None:
    assert run_program(driver, "describe", plans / "relu.plan") == [
        "relu 1",
        "x in float32 32 LINEAR [-1x3] '' ''",
        "y out float32 32 LINEAR [-1x3] '' ''",
        "ok",
    ]


def test_shapes_change_and_results_outlive_the_engine(driver: Path, plans: Path) -> None:
    assert run_program(driver, "run", plans / "relu.plan") == [
        "[1x3]",
        "float32[2x3] 0 1 2 3 4 5",
        "0 1 5",  # a view of the program's memory, which has the result
        "5",
        "1 float32[1x3] 0 1 2",  # the first result, after two more runs, the context and the engine
        "ok",
    ]


def test_failures_are_exceptions_with_kind_and_text(driver: Path, plans: Path) -> None:
    lines = [line for line in run_program(driver, "fail", plans / "relu.plan") if not line.startswith("  fix: ")]
    assert [line.partition(" | ")[::2] for line in lines] == [
        ("PlanError", "no such file: plan cannot be read; got No such file or directory"),
        ("InputError", "x: inputs are not set"),
        ("UsageError", "output 'y': there is no result"),
        ("UsageError", "there is no input 'z'; expected x"),
        ("InputError", "input 'x': another number of elements than the shape says; expected 8, got 6"),
        ("InputError", "input 'x': wrong shape; expected (n, 3), got (3, 2)"),
        ("InputError", "input 'x': the elements are of another type; expected float32, got int64"),
        ("InputError", "input 'x': another number of elements than the shape says; expected 6, got 4"),
        ("InputError", "input 'x': a shape has a dimension that cannot be"),
        ("InputError", "tensor 'x': a null address was bound to a tensor that is not empty; got 24 bytes"),
        ("ok", ""),
        ("ok", ""),
        ("InputError", "input 'x': the memory is too small; expected 48 bytes, got 24"),
        ("InputError", "x: inputs are not set"),
        ("ok", ""),
        ("InputError", "output 'y': the memory is too small; expected 24 bytes, got 12"),
        ("UsageError", "no such profile; expected 0 to 0, got 7"),
        ("UsageError", "no such profile; expected below 0, got 0"),
        ("ProviderError", "provider 'cpu': unknown option(s) threads; expected layout"),
        ("PluginError", f"{Path.cwd() / 'nothing.so'}: there is no such plugin library"),
        ("UsageError", "this context was moved to another object, which has taken its place"),
        ("UsageError", "this context was moved to another object, which has taken its place"),
        ("ok", ""),
    ]


def test_profiles(driver: Path, tmp_path: Path) -> None:
    profiles = [{"x": ((1, 3), (2, 3), (4, 3))}, {"x": ((5, 3), (6, 3), (8, 3))}]
    dt.compile(make_model("Relu"), providers=["cpu"], profiles=profiles).save(tmp_path / "two.plan")
    lines = run_program(driver, "profiles", tmp_path / "two.plan")
    assert lines[:2] == ["[1x3] [2x3] [4x3]", "[5x3] [6x3] [8x3]"]
    assert lines[2].startswith("InputError | input 'x': ")
    assert lines[-2:] == ["[8x3]", "ok"]


def test_shapes_that_only_a_run_tells(driver: Path, tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("NonZero", ["x"], ["y"])],
        "found",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [1, "found"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    dt.compile(model, providers=["cpu"]).save(tmp_path / "found.plan")
    assert run_program(driver, "dynamic", tmp_path / "found.plan") == [
        "[1x-1]",
        "int64 [1x3] 0 2 5",
        "[1x3] 5",
        "InputError | output 'y': the memory is too small; expected 24 bytes, got 16",
        "ok",
    ]


def test_outputs_in_the_memory_of_inputs(driver: Path, tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("ScatterElements", ["cache", "at", "x"], ["grown"])],
        "cache",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [size]) for name, size in (("cache", 4), ("x", 2))],
        [helper.make_tensor_value_info("grown", TensorProto.FLOAT, [4])],
        [helper.make_tensor("at", TensorProto.INT64, [2], [1, 2])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    config = dt.BuilderConfig()
    config.providers, config.aliases = ["cpu"], {"grown": "cache"}
    dt.compile(model, config=config).save(tmp_path / "cache.plan")
    lines = run_program(driver, "alias", tmp_path / "cache.plan")
    assert lines[:3] == ["cache 0 1", "float32[4] 0 7 7 3", "float32[4] 9 7 7 9"]
    assert lines[3] == "UsageError | output 'grown': it has the memory of input 'cache'"


def test_threads_have_contexts_of_their_own(driver: Path, plans: Path) -> None:
    assert run_program(driver, "threads", plans / "relu.plan", plans / "neg.plan")[0] == "50 " * 8


def test_nothing_stays_of_plans_that_are_gone(driver: Path, plans: Path) -> None:
    quarantine = {"ASAN_OPTIONS": "quarantine_size_mb=1"}  # memory that a sanitizer holds back is not lost
    lines = run_program(driver, "repeat", plans / "relu.plan", "1000", **quarantine)
    assert int(lines[-2]) < 2_000  # KB in the last 500 rounds


def test_hostile_plans_are_exceptions(driver: Path, plans: Path, tmp_path: Path) -> None:
    raw, rng = (plans / "relu.plan").read_bytes(), random.Random(0)
    cases = [b"", b"\0" * 64, raw[:7], raw[: len(raw) // 2], rng.randbytes(4096), b"\xff" * 8 + raw[8:]]
    for _ in range(20):
        damaged = bytearray(raw)
        damaged[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        cases.append(bytes(damaged))
    paths = [tmp_path / f"{number}.plan" for number in range(len(cases))]
    for path, content in zip(paths, cases, strict=True):
        path.write_bytes(content)
    lines = [line for line in run_program(driver, "hostile", *paths) if not line.startswith("  fix: ")]
    assert len(lines) == 2 * len(cases) + 1
    assert {line.partition(" | ")[0] for line in lines[:-1]} <= {"PlanCorruptError", "PlanVersionError", "PlanError"}


def test_a_carried_library_needs_host_code(driver: Path, compile_library: Compile, tmp_path: Path) -> None:
    library = compile_library("probe")
    registry = dt.get_plugin_registry()
    handle = registry.load_library(library)
    try:
        for name, carried in (("carries", [library]), ("names", [])):
            config = dt.BuilderConfig()
            config.providers, config.plugins_to_serialize = ["cpu"], carried
            with dt.compile(make_model("Probe", 2, "trt.plugins"), config=config) as engine:
                engine.save(tmp_path / f"{name}.plan")
    finally:
        registry.deregister_library(handle)
    lines = run_program(driver, "carried", tmp_path / "carries.plan")
    assert lines[0] == "PlanTrustError | the plan carries the plugin library 'libprobe', which is code"
    assert lines[2:] == ["float32[2x3] 0 1 2 3 4 5", "2 the finder is set", "2 made ", "ok"]
    assert run_program(driver, "library", tmp_path / "names.plan", library) == ["float32[2x3] 0 1 2 3 4 5", "ok"]


DEVICE = """
import os
from dovetail.provider.loader import get_provider, register_provider
from dovetail.testing import HostDeviceFactory

register_provider(HostDeviceFactory())
device = get_provider("device")
stream = device.create_stream()
os.environ["DEVICE_STREAM"] = str(stream.handle)
for name in ("DEVICE_INPUT", "DEVICE_OUTPUT"):
    os.environ[name] = str(device.allocator.allocate(24, 256, 0))


def get_creators():
    return []
"""


def test_memory_and_streams_of_a_device(driver: Path, tmp_path: Path) -> None:
    with host_device() as device:
        dt.compile(make_model("Relu", 2), providers=[device.name, "cpu"]).save(tmp_path / "device.plan")
        name = device.name
    (tmp_path / "registers.py").write_text(DEVICE.replace('"device"', f'"{name}"'))
    assert run_program(driver, "device", tmp_path / "device.plan", tmp_path / "registers.py") == [
        f"{name} {name}",
        "float32[2x3] 0 0 0 1 2 3",
        "5 3",
        "5 3",
        "5 3",
        "ok",
    ]


def test_the_interpreter_starts_once(driver: Path, plans: Path) -> None:
    lines = run_program(driver, "restart", plans / "relu.plan")
    assert lines[:2] == [
        "ok",
        "StartError | the interpreter was started and ended in this process, and can be started once",
    ]


def test_threads_may_end_after_the_interpreter(driver: Path, plans: Path) -> None:
    result = "float32[2x3] 0 1 2 3 4 5"
    assert run_program(driver, "outlive", plans / "relu.plan") == [result, result, "0", "ok"]


def test_a_python_without_dovetail_is_told(driver: Path, plans: Path, tmp_path: Path) -> None:
    lines = run_program(driver, "describe", plans / "relu.plan", DOVETAIL_PYTHON=str(tmp_path / "bin/python"))
    assert lines[0].startswith("StartError | Dovetail cannot be imported: No module named 'dovetail'; looked at ")
    assert "dovetail runtime-flags" in lines[1]


def test_the_environment_chooses_no_modules(driver: Path, plans: Path, tmp_path: Path) -> None:
    (tmp_path / "dovetail.py").write_text("raise SystemExit('taken over')")
    lines = run_program(driver, "describe", plans / "relu.plan", PYTHONPATH=str(tmp_path))
    assert lines[-1] == "ok"


def test_plans_in_memory_need_an_address_and_their_size(driver: Path, plans: Path) -> None:
    """Memory behind the plan cannot be read, so a load that trusts a size that is too large ends the process."""
    lines = [line for line in run_program(driver, "memory", plans / "relu.plan") if not line.startswith("  fix: ")]
    assert all(line.startswith("UsageError | the address of the plan is null") for line in lines[:5]), lines[:5]
    sizes, others = lines[5:17], lines[17:]
    assert all(line.startswith(("PlanCorruptError | plan bytes", "UsageError | the plan has no")) for line in sizes), (
        sizes
    )
    assert others[:2] == ["ok", "relu relu"]
    assert others[2].startswith("InputError | tensor 'y': a null address was bound"), others
    assert others[3:] == ["ok"]
