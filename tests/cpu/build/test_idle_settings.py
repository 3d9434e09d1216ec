"""Every flag and setting of a build either does something for the network, or the build tells that it does nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

import dovetail as dt
from dovetail.cli import main
from dovetail.errors import TimingCacheError, UsageError
from dovetail.loggers import Severity
from tests.support.cli_models import write_library, write_model
from tests.support.typed import Built, Log, TypedPlugin

Flag = dt.BuilderFlag

MODEL = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 21]>
    scaled (float[2, 4] x) => (float[2, 4] y) <float[4] w = {0.5, 2, -1, 1}> { [scale] y = Mul(x, w) }
""")
NO_WEIGHTS = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 21]>
    bare (float[2, 4] x) => (float[2, 4] y) { y = Neg(x) }
""")


class Warnings(dt.ILogger):
    """Keeps what is told of settings."""

    def __init__(self) -> None:
        super().__init__()
        self.idle: list[str] = []

    def log(self, severity: Any, msg: str) -> None:
        if severity == Severity.WARNING and "has no effect" in msg:
            self.idle.append(msg)


def make_config(*flags: dt.BuilderFlag, **settings: Any) -> dt.BuilderConfig:
    config = dt.BuilderConfig()
    for flag in flags:
        config.set_flag(flag)
    for name, value in settings.items():
        setattr(config, name, value)
    return config


def told_of(config: dt.BuilderConfig, model: Any = MODEL) -> list[str]:
    """What a build says does nothing."""
    log = Warnings()
    dt.compile(model, config=config, logger=log).close()
    return log.idle


# flags: one that is seen to do something is in the first table, every other one has to be told


def check_refit(flag: dt.BuilderFlag, _: Path) -> None:
    with dt.compile(MODEL, config=make_config(flag)) as engine, dt.compile(MODEL) as plain:
        assert (engine.refittable, plain.refittable) == (True, False)


def check_strip(flag: dt.BuilderFlag, _: Path) -> None:
    with dt.compile(MODEL, config=make_config(flag)) as engine:
        assert any(blob.stripped for blob in engine.manifest.blobs.values())


def build_with_cache(folder: Path, *flags: dt.BuilderFlag) -> int:
    """How many timings are in the cache of a build with a plugin that has two tactics."""
    registry = dt.PluginRegistry(parent=dt.get_plugin_registry())
    registry.load_library(write_library(folder))
    cache, config = dt.TimingCache(), make_config(*flags)
    config.set_timing_cache(cache, True)
    model = write_model(folder / "small.onnx")
    dt.compile(model, config=config, registry=registry, shapes={"x": (2, 4)}, logger=Warnings()).close()
    return len(cache)


def check_no_cache(flag: dt.BuilderFlag, folder: Path) -> None:
    assert build_with_cache(folder) > 0
    assert build_with_cache(folder, flag) == 0


def check_miss(flag: dt.BuilderFlag, folder: Path) -> None:
    with pytest.raises(TimingCacheError):
        build_with_cache(folder, flag)


WORKING: dict[dt.BuilderFlag, Callable[[dt.BuilderFlag, Path], None]] = {
    Flag.REFIT: check_refit,
    Flag.REFIT_IDENTICAL: check_refit,
    Flag.STRIP_PLAN: check_strip,
    Flag.DISABLE_TIMING_CACHE: check_no_cache,
    Flag.ERROR_ON_TIMING_CACHE_MISS: check_miss,
}
"""What a flag is seen to do when an ONNX model is built."""
PRECISIONS = {
    Flag.FP16: "dovetail build --fp16",
    Flag.BF16: "dovetail build --bf16",
    Flag.INT8: "dovetail build --int8",
    Flag.FP8: "dovetail build --fp8",
}


@pytest.mark.parametrize("flag", WORKING, ids=lambda flag: flag.name)
def test_a_flag_that_works_is_not_told(flag: dt.BuilderFlag, tmp_path: Path) -> None:
    WORKING[flag](flag, tmp_path)
    assert told_of(make_config(flag)) == []


@pytest.mark.parametrize("flag", [flag for flag in Flag if flag not in WORKING], ids=lambda flag: flag.name)
def test_every_other_flag_is_told_once_with_a_reason(flag: dt.BuilderFlag) -> None:
    (text,) = told_of(make_config(flag))
    assert text.startswith(f"BuilderFlag.{flag.name} has no effect: ")
    reason = text.partition(": ")[2]
    assert len(reason) > 10
    assert reason != "nothing reads it"
    with pytest.raises(UsageError, match=f"BuilderFlag.{flag.name} has no effect"):
        dt.compile(MODEL, config=make_config(flag), strict=True)


def test_what_nobody_asked_for_is_not_told() -> None:
    config = dt.BuilderConfig()
    assert config.get_flag(Flag.TF32)
    assert told_of(config) == []
    config.set_flag(Flag.FP16)
    config.clear_flag(Flag.FP16)
    config.clear_flag(Flag.TF32)
    assert told_of(config) == []
    config.flags |= 1 << Flag.FP16
    assert len(told_of(config)) == 1


@pytest.mark.parametrize(("flag", "instead"), PRECISIONS.items(), ids=lambda value: getattr(value, "name", ""))
def test_a_precision_says_what_to_do_instead(flag: dt.BuilderFlag, instead: str) -> None:
    (text,) = told_of(make_config(flag))
    assert "the types of an ONNX model are its own" in text
    assert instead in text
    assert "strongly_typed=False" in text


@pytest.mark.parametrize("flag", [Flag.REFIT, Flag.STRIP_PLAN], ids=lambda flag: flag.name)
def test_refit_without_weights_is_told(flag: dt.BuilderFlag) -> None:
    (text,) = told_of(make_config(flag), NO_WEIGHTS)
    assert "no weight can be replaced" in text


def test_a_plan_does_not_claim_a_precision(tmp_path: Path) -> None:
    plain, asked = (dt.compile(MODEL, config=make_config(*flags), logger=Log()) for flags in ((), (Flag.FP16,)))
    with plain, asked:
        assert asked.manifest.build == plain.manifest.build
        assert asked.serialize() == plain.serialize()


# weakly typed networks


@pytest.mark.parametrize("flag", PRECISIONS, ids=lambda flag: flag.name)
def test_a_strongly_typed_network_is_told_and_a_weakly_typed_one_uses_it(flag: dt.BuilderFlag) -> None:
    ranges = {"x": (-1.0, 1.0), "y": (-2.0, 2.0)} if flag is Flag.INT8 else None
    log = Warnings()
    built = Built(TypedPlugin(), flags=[flag], ranges=ranges, log=log)  # type: ignore[arg-type]
    assert log.idle == []
    assert built.ports()[0][0] != "float32"
    Built(TypedPlugin(), flags=[flag], strongly_typed=True, log=log)  # type: ignore[arg-type]
    assert [text for text in log.idle if f"BuilderFlag.{flag.name} " in text and "strongly typed" in text]


@pytest.mark.parametrize("flag", [Flag.FP16, Flag.BF16, Flag.FP8], ids=lambda flag: flag.name)
def test_a_type_that_no_layer_takes_is_told(flag: dt.BuilderFlag) -> None:
    class Wide(TypedPlugin):
        types = (dt.float32,)

    log = Warnings()
    Built(Wide(), flags=[flag], log=log)  # type: ignore[arg-type]
    (text,) = log.idle
    assert text.startswith(f"BuilderFlag.{flag.name} has no effect")


def test_a_weakly_typed_network_without_plugins_is_told() -> None:
    log = Warnings()
    network = dt.Builder(log).create_network(strongly_typed=False)
    x = network.add_input("x", dt.float32, (2, 3))
    network.mark_output(network.add_activation(x, dt.ActivationType.RELU).get_output(0))
    dt.compile(network, config=make_config(Flag.FP16), logger=log).close()
    (text,) = log.idle
    assert "plugin layers" in text


# other settings


def limit_a_pool(config: dt.BuilderConfig) -> None:
    config.set_memory_pool_limit(dt.MemoryPoolType.TACTIC_DRAM, 1 << 20)


def ask_for_a_preview(config: dt.BuilderConfig) -> None:
    config.set_preview_feature(dt.PreviewFeature.RUNTIME_ACTIVATION_RESIZE_10_10, True)


def calibrate_for_nobody(config: dt.BuilderConfig) -> None:
    config.set_calibration_profile(dt.OptimizationProfile())


def disable_a_cache(config: dt.BuilderConfig) -> None:
    config.set_flag(Flag.DISABLE_TIMING_CACHE)
    config.set_timing_cache(dt.TimingCache(), True)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (limit_a_pool, "TACTIC_DRAM"),
        (ask_for_a_preview, "RUNTIME_ACTIVATION_RESIZE_10_10"),
        (calibrate_for_nobody, "calibration profile"),
        (disable_a_cache, "the timing cache"),
        (lambda config: setattr(config, "avg_timing_iterations", 8), "avg_timing_iterations"),
        (lambda config: setattr(config, "builder_optimization_level", 5), "builder_optimization_level"),
        (lambda config: setattr(config, "engine_capability", dt.EngineCapability.SAFETY), "engine_capability"),
    ],
)
def test_a_setting_that_nothing_reads_is_told(change: Callable[[dt.BuilderConfig], object], text: str) -> None:
    config = dt.BuilderConfig()
    change(config)
    (told,) = told_of(config)
    assert text in told


def test_a_pattern_that_no_layer_has_is_an_error_with_the_near_names() -> None:
    with pytest.raises(dt.UsageError, match=r"no layer is called 'scael'.*\n.*did you mean 'scale'"):
        told_of(make_config(layer_providers={"scael": "cpu"}))
    assert told_of(make_config(layer_providers={"scael": "cpu"}, is_part=True)) == []


def test_a_pattern_that_a_layer_has_is_not_told() -> None:
    assert told_of(make_config(layer_providers={"sca*": "cpu"})) == []


def test_wishes_for_layers_and_networks_are_told() -> None:
    log = Warnings()
    builder = dt.Builder(log)
    network = builder.create_network(1 << dt.NetworkDefinitionCreationFlag.PREFER_JIT_PYTHON_PLUGINS)
    x = network.add_input("x", dt.float32, (2, 3))
    x.dynamic_range = (-1.0, 1.0)
    layer = network.add_activation(x, dt.ActivationType.RELU)
    layer.precision = dt.float16
    layer.set_output_type(0, dt.float16)
    network.mark_output(layer.get_output(0))
    builder.num_DLA_cores = 4
    builder.build_engine_with_config(network, builder.create_builder_config()).close()
    for text in (
        "num_DLA_cores",
        "precision of layer",
        "set_output_type of layer",
        "dynamic range of 'x'",
    ):
        assert sum(text in line for line in log.idle) == 1, text
    with pytest.raises(UsageError, match="STRONGLY_TYPED"):
        builder.create_network(1 << dt.NetworkDefinitionCreationFlag.STRONGLY_TYPED, strongly_typed=False)


def test_threads_of_a_runtime_are_told() -> None:
    with dt.compile(MODEL) as engine:
        plan = engine.serialize()
    log = Warnings()
    runtime = dt.Runtime(log)
    runtime.max_threads = 4
    runtime.deserialize_cuda_engine(plan).close()
    (text,) = log.idle
    assert "provider_options" in text


# the command line


def test_the_command_line_tells_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(NO_WEIGHTS, tmp_path / "bare.onnx")
    words = ["build", str(tmp_path / "bare.onnx"), "-o", str(tmp_path / "a.plan"), "--refit"]
    assert main([*words, "--json"]) == 0
    shown = capsys.readouterr()
    (line,) = json.loads(shown.out)["warnings"]
    assert line.startswith("BuilderFlag.REFIT has no effect")
    assert f"warning: {line}" in shown.err
    assert main([*words, "--strict"]) == 1
