"""Weak typing end to end: flags propose types, ranges and calibrators give scales, reformats quantize."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail as dt
from dovetail.plugin.arrays import address_of
from tests.support.plugins import Calls, PlainCreator
from tests.support.typed import Built, Log, TypedPlugin

FLAGS = {
    dt.float16: dt.BuilderFlag.FP16,
    dt.bfloat16: dt.BuilderFlag.BF16,
    dt.fp8: dt.BuilderFlag.FP8,
    dt.int8: dt.BuilderFlag.INT8,
}
INT8 = (dt.BuilderFlag.INT8,)
RANGES = {"x": (-1.27, 1.0), "y": (-2.54, 2.54)}
NAMES = {dt.float16: "float16", dt.bfloat16: "bfloat16", dt.fp8: "float8_e4m3fn", dt.int8: "int8"}


def _batches(count: int = 4, shape: tuple[int, ...] = (4, 8)) -> list[dict[str, np.ndarray]]:
    """Values of at most 1.27, which occur in every batch."""
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(-1.27, 1.27, shape).astype(np.float32) for _ in range(count)]
    for array in arrays:
        array.flat[0] = 1.27
    return [{"x": array} for array in arrays]


def _min_max(batches: Any = None, cache_path: Path | None = None) -> dt.ArrayCalibrator:
    given = _batches() if batches is None else batches
    return dt.ArrayCalibrator(given, dt.CalibrationAlgoType.MINMAX_CALIBRATION, cache_path)


def _details(calls: Calls, method: str) -> list[Any]:
    return [detail for name, detail in calls if name == method]


def _offered_scales(calls: Calls) -> set[tuple[int, float]]:
    """Position and scale of every INT8 proposal."""
    return {(pos, round(scale, 6)) for pos, dtype, scale in _details(calls, "proposed") if dtype == dt.int8}


class Int8Only(TypedPlugin):
    types = (dt.int8,)


# types by flags


@pytest.mark.parametrize("dtype", [dt.float16, dt.bfloat16, dt.fp8])
def test_a_flag_offers_a_type_and_the_faster_one_is_chosen(dtype: Any) -> None:
    built = Built(TypedPlugin(), flags=[FLAGS[dtype]])
    assert built.ports() == [(NAMES[dtype], -1.0)] * 2
    assert built.steps == [f"float32->{NAMES[dtype]}", "plugin", f"{NAMES[dtype]}->float32"]
    x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)
    result = built.load()(x)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, (2 * x.astype(dtype.numpy).astype(np.float32)).astype(dtype.numpy))


def test_fp32_stays_when_it_is_faster() -> None:
    class SlowHalf(TypedPlugin):
        slow = (dt.float16,)

    built = Built(SlowHalf(), flags=[dt.BuilderFlag.FP16])
    assert built.steps == ["plugin"]
    rows = {row.formats[0]: row for row in built.manifest.tuning[0].candidates}
    assert rows["FLOAT:LINEAR"].chosen
    assert rows["HALF:LINEAR"].status == "timed"


def test_without_flags_and_in_strongly_typed_networks_only_the_networks_type_is_offered() -> None:
    for arguments in ({}, {"flags": list(FLAGS.values()), "strongly_typed": True, "ranges": RANGES}):
        calls: Calls = []
        built = Built(TypedPlugin(2.0, calls), **arguments)  # type: ignore[arg-type]
        assert {dtype for _, dtype, _ in _details(calls, "proposed")} == {dt.float32}
        assert built.steps == ["plugin"]


def test_types_are_proposed_in_a_fixed_order() -> None:
    calls: Calls = []
    Built(TypedPlugin(2.0, calls), flags=list(FLAGS.values()), ranges=RANGES)
    first = [dtype for pos, dtype, _ in _details(calls, "proposed") if pos == 0]
    assert first[:5] == [dt.float32, dt.float16, dt.bfloat16, dt.int8, dt.fp8]


def test_no_precision_of_a_correct_plugin_is_called_wrong() -> None:
    for limits in (RANGES, {"x": (-0.01, 0.01), "y": (-0.02, 0.02)}, {"x": (-90.0, 90.0), "y": (-180.0, 180.0)}):
        log = Log()
        built = Built(TypedPlugin(), flags=list(FLAGS.values()), ranges=limits, log=log)
        rows = built.manifest.tuning[0].candidates
        assert [row.status for row in rows] == ["timed"] * 5, rows
        assert "disagree" not in log


def test_a_wrong_precision_is_found_and_not_chosen() -> None:
    class WrongInInt8(TypedPlugin):
        def enqueue(self, *args: Any) -> None:
            if args[0][0].type == dt.int8:
                args[1][0].scale *= 2  # as if it forgot the scale of its output
                super().enqueue(*args)
                args[1][0].scale /= 2
            else:
                super().enqueue(*args)

    built = Built(WrongInInt8(), flags=[dt.BuilderFlag.INT8], ranges=RANGES)
    wrong = [row for row in built.manifest.tuning[0].candidates if row.status == "wrong"]
    assert [row.formats[0].split("*")[0] for row in wrong] == ["INT8"]
    assert "differs from FLOAT" in (wrong[0].reason or "")
    assert built.ports()[0][0] == "float32"


def test_a_plugin_without_fp32_runs_through_the_type_a_flag_allows() -> None:
    class HalfOnly(TypedPlugin):
        types = (dt.float16,)

    built = Built(HalfOnly(), flags=[dt.BuilderFlag.FP16])
    assert built.steps == ["float32->float16", "plugin", "float16->float32"]
    with pytest.raises(dt.BuildError, match="could not find any supported formats"):
        Built(HalfOnly())


# INT8 with ranges


def test_explicit_ranges_give_scales_to_every_descriptor() -> None:
    calls: Calls = []
    built = Built(TypedPlugin(2.0, calls), flags=INT8, ranges=RANGES)
    assert built.steps == ["float32->int8", "plugin", "int8->float32"]
    assert built.ports() == [("int8", pytest.approx(0.01)), ("int8", pytest.approx(0.02))]
    assert _offered_scales(calls) == {(0, 0.01), (1, 0.02)}
    configured = [(i.desc, o.desc) for i, o in _details(calls, "configure_plugin")]
    for descs in (configured, _details(calls, "on_shape_change"), _details(calls, "enqueue")):
        scales = {(round(i.scale, 6), round(o.scale, 6)) for i, o in descs if i.type == dt.int8}
        assert scales == {(0.01, 0.02)}
        assert {before.scale for before, _ in descs if before.type == dt.float32} <= {-1.0}


def test_the_inserted_steps_quantize_and_dequantize_exactly() -> None:
    calls: Calls = []
    engine = Built(TypedPlugin(2.0, calls), flags=INT8, ranges=RANGES).load()
    x = np.linspace(-2, 2, 32, dtype=np.float32).reshape(4, 8)
    scale = np.float32(0.01)
    q = np.clip(np.rint(x / scale), -128, 127)
    np.testing.assert_allclose(engine(x), np.clip(np.rint(q * scale * 2 / 0.02), -128, 127) * 0.02, rtol=1e-6)


def test_two_int8_plugins_share_a_tensor_without_a_reformat_between_them() -> None:
    ranges = {**RANGES, "t1": (-2.54, 2.54), "y": (-5.08, 5.08)}
    built = Built(TypedPlugin(), TypedPlugin(), flags=INT8, ranges=ranges)
    assert built.steps == ["float32->int8", "plugin", "plugin", "int8->float32"]
    assert built.ports(0)[1] == built.ports(1)[0]


def test_one_step_quantizes_and_packs() -> None:
    class Packed(TypedPlugin):
        types = (dt.int8,)
        formats = (dt.TensorFormat.CHW32,)

    built = Built(Packed(), flags=INT8, ranges=RANGES, shape=(2, 5, 3, 3))
    assert built.steps == ["float32->int8", "plugin", "int8->float32"]
    x = np.random.default_rng(0).uniform(-1, 1, (2, 5, 3, 3)).astype(np.float32)
    assert np.abs(built.load()(x) - 2 * x).max() <= 0.02


def test_an_open_engine_is_calibrated_with_arrays_of_any_shape() -> None:
    network = dt.Network(strongly_typed=False)
    x = network.add_input("x", dt.float32, (-1, 8))
    y = network.add_plugin_v3([x], [], TypedPlugin()).get_output(0)
    network.mark_output(y)
    config = dt.BuilderConfig()
    config.set_flag(dt.BuilderFlag.INT8)
    config.int8_calibrator = _min_max([batch for rows in (1, 5) for batch in _batches(1, (rows, 8))])
    registry = dt.PluginRegistry()
    registry.register_creator(PlainCreator("TestScale", TypedPlugin), "")
    engine = dt.compile(network, config=config, registry=registry)
    inputs = _batches(1, (7, 8))[0]
    assert np.abs(engine(**inputs) - 2 * inputs["x"]).max() <= 0.02
    assert [step.kind for step in engine.manifest.programs[0].steps] == ["reformat", "plugin", "reformat"]


def test_a_tensor_without_a_scale_stays_in_floating_point() -> None:
    calls: Calls = []
    built = Built(TypedPlugin(2.0, calls), flags=INT8, ranges={"x": RANGES["x"]})
    assert built.steps == ["plugin"]
    assert {pos for pos, dtype, _ in _details(calls, "proposed") if dtype == dt.int8} == {0}


def test_int8_with_no_scale_at_all_is_reported() -> None:
    built = Built(TypedPlugin(), flags=INT8)
    assert built.steps == ["plugin"]
    assert "INT8 is allowed, but no tensor has a scale" in built.log


def test_an_int8_only_plugin_needs_no_fp32_when_its_ranges_are_set() -> None:
    assert Built(Int8Only(), flags=INT8, ranges=RANGES).ports()[0][0] == "int8"


def _quantized_network(builder: dt.Builder, calls: Calls, *, strongly_typed: bool) -> Any:
    """x, Q and DQ, a plugin, Q and DQ; a strongly typed one has the plugin between the Q and the DQ."""
    network = builder.create_network(strongly_typed=strongly_typed)
    x = network.add_input("x", dt.float32, (4, 8))
    scales = [network.add_constant((), np.array(s, np.float32)).get_output(0) for s in (0.01, 0.02)]
    q = network.add_quantize(x, scales[0], dt.int8).get_output(0)
    if strongly_typed:
        y = network.add_plugin_v3([q], [], TypedPlugin(2.0, calls)).get_output(0)
    else:
        real = network.add_dequantize(q, scales[0], dt.float32).get_output(0)
        z = network.add_plugin_v3([real], [], TypedPlugin(2.0, calls)).get_output(0)
        y = network.add_quantize(z, scales[1], dt.int8).get_output(0)
    network.mark_output(network.add_dequantize(y, scales[1], dt.float32).get_output(0))
    return network


@pytest.mark.parametrize("strongly_typed", [True, False])
def test_scales_are_taken_from_q_and_dq_nodes(strongly_typed: bool) -> None:
    calls: Calls = []
    builder = dt.Builder()
    config = builder.create_builder_config()
    config.set_flag(dt.BuilderFlag.INT8)
    network = _quantized_network(builder, calls, strongly_typed=strongly_typed)
    builder.build_serialized_network(network, config)
    assert _offered_scales(calls) == {(0, 0.01), (1, 0.02)}


# calibration


def test_min_max_ranges_become_scales() -> None:
    log = Log()
    built = Built(TypedPlugin(), flags=INT8, calibrator=_min_max(), log=log)
    assert built.ports() == [("int8", pytest.approx(0.01)), ("int8", pytest.approx(0.02))]
    assert built.steps == ["float32->int8", "plugin", "int8->float32"]
    x = _batches()[0]["x"]
    assert np.abs(built.load()(x) - 2 * x).max() <= 0.01 * 2
    assert log.lines == []


def test_entropy_clips_what_is_rare() -> None:
    rng = np.random.default_rng(0)
    batches = [{"x": rng.normal(size=(100, 100)).astype(np.float32)} for _ in range(3)]
    batches[1]["x"][0, 0] = 80.0
    built = Built(TypedPlugin(), flags=INT8, shape=(100, 100), calibrator=dt.ArrayCalibrator(batches))
    (kind, before), (_, after) = built.ports()
    assert kind == "int8"
    assert 2.5 < before * 127 < 10
    assert after == pytest.approx(2 * before, rel=0.1)


def test_an_explicit_range_wins_over_the_calibrator() -> None:
    built = Built(TypedPlugin(), flags=INT8, ranges={"x": (-12.7, 12.7)}, calibrator=_min_max())
    assert built.ports() == [("int8", pytest.approx(0.1)), ("int8", pytest.approx(0.02))]


def test_a_q_or_dq_scale_wins_over_the_calibrator() -> None:
    calls: Calls = []
    builder = dt.Builder()
    network = _quantized_network(builder, calls, strongly_typed=False)
    config = builder.create_builder_config()
    config.set_flag(dt.BuilderFlag.INT8)
    config.int8_calibrator = _min_max([{"x": np.full((4, 8), 0.5, np.float32)}])
    builder.build_serialized_network(network, config)
    assert _offered_scales(calls) == {(0, 0.01), (1, 0.02)}


def test_calibration_offers_fp32_only_and_times_nothing() -> None:
    class TwoTactics(TypedPlugin):
        tactics = (1, 2)

    calls: Calls = []

    class Watching(dt.IInt8MinMaxCalibrator):
        batches = iter(_batches(2))

        def get_batch_size(self) -> int:
            return 4

        def get_batch(self, names: Any) -> Any:
            assert names == ["x"]
            assert {dtype for _, dtype, _ in _details(calls, "proposed")} == {dt.float32}
            runs.append(len(_details(calls, "enqueue")))
            batch = next(self.batches, None)
            return None if batch is None else [batch["x"]]

    runs: list[int] = []
    Built(TwoTactics(2.0, calls), flags=INT8, calibrator=Watching())
    assert runs == [0, 1, 2]


def test_a_plugin_without_fp32_cannot_be_calibrated() -> None:
    with pytest.raises(dt.BuildError) as caught:
        Built(Int8Only(), flags=INT8, calibrator=_min_max())
    text = str(caught.value)
    assert "calibration runs the network in FP32, which this plugin does not take" in text
    assert "plugin 'TestScale' version '1'" in text
    assert "FLOAT   LINEAR" in text
    assert "set a dynamic range on each of the plugin's tensors and build without a calibrator" in text


def test_batches_may_be_addresses() -> None:
    class ByAddress(dt.IInt8MinMaxCalibrator):
        arrays = tuple(batch["x"] for batch in _batches())
        given = 0

        def get_batch_size(self) -> int:
            return 4

        def get_batch(self, names: Any) -> Any:
            self.given += 1
            return [address_of(self.arrays[self.given - 1])] if self.given <= len(self.arrays) else []

    built = Built(TypedPlugin(), flags=INT8, calibrator=ByAddress())
    assert built.ports() == [("int8", pytest.approx(0.01)), ("int8", pytest.approx(0.02))]


PROFILE = ((1, 8), (4, 8), (6, 8))


def test_dynamic_shapes_are_calibrated_at_the_shapes_of_the_arrays_or_at_the_tuned_one() -> None:
    arrays = [batch["x"] for rows in (1, 6) for batch in _batches(1, (rows, 8))]
    arrays[0][0, 0] = 12.7
    built = Built(
        TypedPlugin(), flags=INT8, shape=(-1, 8), profile=PROFILE, calibrator=_min_max([{"x": a} for a in arrays])
    )
    assert built.ports()[0] == ("int8", pytest.approx(0.1))

    class ByAddress(dt.IInt8MinMaxCalibrator):
        memory: Any = _batches(1)[0]["x"]

        def get_batch_size(self) -> int:
            return 4

        def get_batch(self, names: Any) -> Any:
            memory, self.memory = self.memory, None
            self.kept = memory
            return None if memory is None else [address_of(memory)]

    built = Built(TypedPlugin(), flags=INT8, shape=(-1, 8), profile=PROFILE, calibrator=ByAddress())
    assert built.ports()[0] == ("int8", pytest.approx(0.01))


def test_a_batch_outside_the_profile_is_refused_and_another_profile_can_be_set() -> None:
    batches = _batches(1, (9, 8))
    with pytest.raises(dt.InputError, match=r"outside profile 0, which allows \(1..6, 8\)"):
        Built(TypedPlugin(), flags=INT8, shape=(-1, 8), profile=PROFILE, calibrator=_min_max(batches))

    def widen(config: Any) -> None:
        profile = dt.OptimizationProfile()
        profile.set_shape("x", (1, 8), (9, 8), (9, 8))
        config.set_calibration_profile(profile)

    built = Built(
        TypedPlugin(), flags=INT8, shape=(-1, 8), profile=PROFILE, calibrator=_min_max(batches), configure=widen
    )
    assert built.ports()[0] == ("int8", pytest.approx(0.01))
    assert len(built.manifest.profiles) == 1


def test_the_callers_arrays_are_left_alone_by_plugins_that_write_in_place() -> None:
    class InPlace(TypedPlugin, dt.IPluginV3OneBuildV2):
        def get_aliased_input(self, output_index: int) -> int:
            return 0

    def preview(config: Any) -> None:
        config.set_preview_feature(dt.PreviewFeature.ALIASED_PLUGIN_IO_10_03, True)

    batches = _batches()
    before = [batch["x"].copy() for batch in batches]
    Built(InPlace(), flags=INT8, calibrator=_min_max(batches), configure=preview)
    for batch, array in zip(batches, before, strict=True):
        np.testing.assert_array_equal(batch["x"], array)


def test_tensors_that_were_always_zero_are_reported_and_stay_in_floating_point() -> None:
    built = Built(TypedPlugin(0.0), flags=INT8, calibrator=_min_max())
    assert built.steps == ["plugin"]
    assert "calibration found no range for y" in built.log


def test_tensors_inside_loops_and_constants_get_ranges() -> None:
    calls: Calls = []
    builder = dt.Builder()
    network = builder.create_network(strongly_typed=False)
    x = network.add_input("x", dt.float32, (4, 8))
    loop = network.add_loop()
    loop.add_trip_limit(network.add_constant((), np.array(3, np.int32)).get_output(0), dt.TripLimit.COUNT)
    state = loop.add_recurrence(x)
    doubled = network.add_plugin_v3([state.get_output(0)], [], TypedPlugin(2.0, calls)).get_output(0)
    state.set_input(1, doubled)
    weight = network.add_constant((4, 8), np.full((4, 8), -2.54, np.float32)).get_output(0)
    scaled = network.add_plugin_v3([weight], [], TypedPlugin(2.0, calls)).get_output(0)
    last = loop.add_loop_output(state.get_output(0), dt.LoopOutput.LAST_VALUE).get_output(0)
    network.mark_output(network.add_elementwise(last, scaled, dt.ElementWiseOperation.SUM).get_output(0))
    config = builder.create_builder_config()
    config.set_flag(dt.BuilderFlag.INT8)
    config.int8_calibrator = _min_max()
    builder.build_serialized_network(network, config)
    # The state is x, 2x and 4x when it is read, and 2x, 4x and 8x when it is written.
    assert _offered_scales(calls) == {(0, 0.04), (1, 0.08), (0, 0.02), (1, 0.04)}


# the cache


def test_a_cache_takes_the_place_of_batches(tmp_path: Path) -> None:
    path = tmp_path / "ranges.json"
    first = Built(TypedPlugin(), flags=INT8, calibrator=_min_max(cache_path=path))
    calls: Calls = []
    second = Built(TypedPlugin(2.0, calls), flags=INT8, calibrator=_min_max([], path))
    assert first.ports() == second.ports()
    assert Built(Int8Only(), flags=INT8, calibrator=_min_max([], path)).ports() == first.ports()


def test_a_cache_that_does_not_fit_is_reported_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "ranges.json"
    Built(TypedPlugin(), flags=INT8, calibrator=_min_max(cache_path=path))
    text = path.read_bytes()
    log = Log()
    Built(TypedPlugin(), TypedPlugin(), flags=INT8, calibrator=_min_max(cache_path=path), log=log)
    assert "the calibration cache is not used, the network is calibrated again: it has no range of 't1'" in log
    assert path.read_bytes() != text
    log = Log()
    Built(TypedPlugin(), TypedPlugin(), flags=INT8, calibrator=dt.ArrayCalibrator(_batches(), cache_path=path), log=log)
    assert "it was made by MINMAX_CALIBRATION, and the calibrator asks for ENTROPY_CALIBRATION_2" in log


def test_a_damaged_cache_ends_the_build(tmp_path: Path) -> None:
    path = tmp_path / "ranges.json"
    path.write_text("{")
    with pytest.raises(dt.BuildError, match="calibration cache is damaged"):
        Built(TypedPlugin(), flags=INT8, calibrator=_min_max(cache_path=path))


# what cannot be


def test_a_strongly_typed_network_refuses_a_calibrator() -> None:
    with pytest.raises(dt.UsageError, match="cannot be used with a strongly typed network") as caught:
        Built(TypedPlugin(), flags=INT8, strongly_typed=True, calibrator=_min_max())
    assert "Q/DQ layers" in str(caught.value)


def test_a_calibrator_without_the_flag_is_reported() -> None:
    built = Built(TypedPlugin(), calibrator=_min_max())
    assert built.steps == ["plugin"]
    assert "the calibrator is not used: BuilderFlag.INT8 is not set" in built.log


def test_a_calibrator_without_batches_is_an_error() -> None:
    with pytest.raises(dt.BuildError, match="calibrator ArrayCalibrator: the calibrator gave no batch"):
        Built(TypedPlugin(), flags=INT8, calibrator=_min_max([]))


def test_mistakes_of_a_calibrator_are_named() -> None:
    class Careless(dt.IInt8MinMaxCalibrator):
        answer: Any = None

        def get_batch(self, names: Any) -> Any:
            return self.answer()

    def attempt(answer: Any) -> str:
        calibrator = Careless()
        calibrator.answer = answer
        with pytest.raises(dt.DovetailError) as caught:
            Built(TypedPlugin(), flags=INT8, calibrator=calibrator)
        return str(caught.value)

    assert "calibrator Careless" in attempt(lambda: 1 / 0)
    assert "get_batch raised ZeroDivisionError" in attempt(lambda: 1 / 0)
    assert "expected 1 (x), got 2" in attempt(lambda: [np.zeros((4, 8), np.float32)] * 2)
    assert "expected float32, got float64" in attempt(lambda: [np.zeros((4, 8))])
    assert "input 'x': wrong shape" in attempt(lambda: [np.zeros((4, 9), np.float32)])
    assert "a null address" in attempt(lambda: [0])


# progress


class Monitor(dt.IProgressMonitor):
    def __init__(self, stop_in: str | None = None) -> None:
        self.events: list[Any] = []
        self._stop_in = stop_in

    def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
        self.events.append((phase_name, parent_phase, num_steps))

    def step_complete(self, phase_name: str, step: int) -> bool:
        self.events.append((phase_name, step))
        return phase_name != self._stop_in

    def phase_finish(self, phase_name: str) -> None:
        self.events.append(phase_name)


def test_calibration_is_a_phase_of_its_own_before_tuning() -> None:
    monitor = Monitor()
    Built(TypedPlugin(), flags=INT8, calibrator=_min_max(), configure=lambda c: setattr(c, "progress_monitor", monitor))
    assert ("Calibrate", None, 2) in monitor.events
    assert ("Run calibration batches", "Calibrate", 4) in monitor.events
    assert ("Run calibration batches", 3) in monitor.events
    assert monitor.events.index("Calibrate") < monitor.events.index(("Tune profile 0", "Build programs", 1))


def test_a_monitor_can_stop_calibration() -> None:
    monitor = Monitor(stop_in="Run calibration batches")
    calls: Calls = []
    with pytest.raises(dt.BuildCancelledError):
        Built(
            TypedPlugin(2.0, calls),
            flags=INT8,
            calibrator=_min_max(),
            configure=lambda c: setattr(c, "progress_monitor", monitor),
        )
    assert len(_details(calls, "enqueue")) == 1
    made = len(_details(calls, "clone"))
    assert len(_details(calls, "destroy")) >= made - 1  # the network's own clone lives as long as the network
