"""What the tuner promises: right, faster, skipped failures, stopped hangs, and a cache that makes builds repeatable."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail as dt
from dovetail.plan.container import PlanFile
from dovetail.plan.manifest import Manifest, decode_manifest
from dovetail.plugin import as_array
from tests.support.plugins import PlainCreator, ScalePlugin, build_engine


class Linear(ScalePlugin):
    formats = (dt.TensorFormat.LINEAR,)
    types = (dt.float32,)


def _build(plugin: Any, **kwargs: Any) -> Manifest:
    plan, _ = build_engine(plugin, PlainCreator("TestScale", type(plugin)), **kwargs)
    return decode_manifest(PlanFile.from_bytes(plan).manifest)


def _rows(manifest: Manifest) -> dict[int, Any]:
    return {row.tactic: row for row in manifest.tuning[0].candidates}


def test_the_fastest_tactic_is_chosen() -> None:
    class Slow(Linear):
        tactics = (1, 2, 3)

        def enqueue(self, *args: Any) -> None:
            super().enqueue(*args)
            time.sleep({1: 0.004, 2: 0.0, 3: 0.002}[self.tactic])

    manifest = _build(Slow())
    assert manifest.programs[0].steps[0].tactic == 2
    assert _rows(manifest)[2].chosen
    assert _rows(manifest)[1].time_us > _rows(manifest)[3].time_us > _rows(manifest)[2].time_us


def test_a_failing_tactic_is_skipped_and_recorded() -> None:
    class Failing(Linear):
        def enqueue(self, *args: Any) -> None:
            if self.tactic == 1:
                raise RuntimeError("no such kernel")
            super().enqueue(*args)

    rows = _rows(_build(Failing()))
    assert rows[1].status == "failed"
    assert "no such kernel" in rows[1].reason
    assert rows[2].chosen


def test_when_every_tactic_fails_the_error_shows_the_table() -> None:
    class Broken(Linear):
        def enqueue(self, *args: Any) -> None:
            raise RuntimeError("always")

    with pytest.raises(dt.BuildError) as caught:
        _build(Broken())
    text = str(caught.value)
    assert "tactic 1: failed" in text
    assert "input 0" in text
    assert "accepted" in text


@pytest.mark.parametrize("kind", ["spin", "sleep", "wait"])
def test_a_hanging_tactic_is_stopped(kind: str) -> None:
    class Hanging(Linear):
        def enqueue(self, *args: Any) -> None:
            if self.tactic == 1:
                if kind == "sleep":
                    time.sleep(3600)
                elif kind == "wait":
                    threading.Event().wait()
                while True:
                    pass
            super().enqueue(*args)

    def limit(config: Any) -> None:
        config.tactic_timeout_s = 0.2

    start = time.monotonic()
    rows = _rows(_build(Hanging(), configure=limit))
    assert time.monotonic() - start < 20
    assert rows[1].status == "timeout"
    assert rows[2].chosen


def test_the_majority_of_three_tactics_decides_what_is_right() -> None:
    class OneWrong(Linear):
        tactics = (1, 2, 3)

        def enqueue(self, *args: Any) -> None:
            super().enqueue(*args)
            if self.tactic == 2:
                as_array(args[3][0], args[1][0])[...] += 1.0

    rows = _rows(_build(OneWrong()))
    assert rows[2].status == "wrong"
    assert "majority" in rows[2].reason
    assert not rows[2].chosen


class TwoDisagree(Linear):
    def enqueue(self, *args: Any) -> None:
        super().enqueue(*args)
        if self.tactic == 2:
            as_array(args[3][0], args[1][0])[...] += 1.0
        else:
            time.sleep(0.002)


def test_two_that_disagree_keep_the_default_even_if_it_is_slower() -> None:
    rows = _rows(_build(TwoDisagree()))
    assert rows[1].chosen
    assert "no reference" in rows[2].reason


def test_two_that_disagree_end_a_strict_build() -> None:
    def strict(config: Any) -> None:
        config.strict = True

    with pytest.raises(dt.BuildError, match="disagree"):
        _build(TwoDisagree(), configure=strict)


class WithoutNumbers(Linear):
    """All tactics give NaN but those that are named."""

    tactics = (1, 2, 3)
    right: tuple[int, ...] = ()

    def enqueue(self, *args: Any) -> None:
        super().enqueue(*args)
        if self.tactic not in self.right:
            as_array(args[3][0], args[1][0])[...] = np.nan


class OneHasNumbers(WithoutNumbers):
    right = (3,)


class TwoHaveNumbers(WithoutNumbers):
    right = (2, 3)


class SomeHaveNone(Linear):
    def enqueue(self, *args: Any) -> None:
        super().enqueue(*args)
        as_array(args[3][0], args[1][0])[..., 0] = np.nan


def test_nan_does_not_outvote_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    _build(OneHasNumbers())
    assert "tactics disagree and there is no reference" in capsys.readouterr().err
    rows = _rows(_build(TwoHaveNumbers()))
    assert (rows[1].status, rows[1].chosen) == ("wrong", False)


def test_tactics_that_are_all_nan_are_told_and_end_a_strict_build(capsys: pytest.CaptureFixture[str]) -> None:
    def strict(config: Any) -> None:
        config.strict = True

    _build(WithoutNumbers())
    told = capsys.readouterr().err
    assert "tactics could not be checked against each other" in told
    assert "NaN" in told
    with pytest.raises(dt.BuildError, match="could not be checked"):
        _build(WithoutNumbers(), configure=strict)
    _build(SomeHaveNone(), configure=strict)


def test_timings_that_are_kept_tell_again_that_nothing_was_checked(capsys: pytest.CaptureFixture[str]) -> None:
    class CachedWithoutNumbers(WithoutNumbers):
        timing_cache_id = "nan"

    cache = dt.TimingCache()
    for _ in range(2):
        rows = _rows(_build(CachedWithoutNumbers(), configure=lambda config: config.set_timing_cache(cache, False)))
        assert "could not be checked" in capsys.readouterr().err
        assert all("nothing was compared" in row.reason for row in rows.values())


def test_no_accepted_combination_shows_every_answer() -> None:
    class Picky(Linear):
        def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
            if pos == 1:
                raise ValueError("cannot say")
            return bool(in_out[pos].desc.format == dt.TensorFormat.LINEAR)

    with pytest.raises(dt.BuildError) as caught:
        _build(Picky())
    text = str(caught.value)
    assert "could not find any supported formats" in text
    assert "0 input 0   FLOAT   LINEAR   accepted" in text
    assert "CHW32    refused" in text
    assert "raised ValueError: cannot say" in text


def test_workspace_over_the_limit_is_refused() -> None:
    class Hungry(Linear):
        def get_workspace_size(self, inputs: Any, outputs: Any) -> int:
            return 2**20 if self.tactic == 1 else 0

    def limit(config: Any) -> None:
        config.set_memory_pool_limit(dt.MemoryPoolType.WORKSPACE, 1000)

    rows = _rows(_build(Hungry(), configure=limit))
    assert rows[1].status == "refused"
    assert "1048576 bytes of workspace" in rows[1].reason
    assert rows[2].chosen


class Cached(Linear):
    timing_cache_id = ""


def test_a_second_build_with_the_cache_runs_the_choice_once_and_gives_the_same_manifest() -> None:
    cache = dt.TimingCache()
    calls: list = []

    def use_cache(config: Any) -> None:
        config.set_timing_cache(cache, False)

    first, _ = build_engine(Cached(), PlainCreator("TestScale", Cached), configure=use_cache)
    second, _ = build_engine(Cached(calls=calls), PlainCreator("TestScale", Cached), configure=use_cache)
    assert [name for name, _ in calls].count("enqueue") == 1
    assert "configure_plugin" in {name for name, _ in calls}
    third, _ = build_engine(Cached(), PlainCreator("TestScale", Cached), configure=use_cache)
    assert PlanFile.from_bytes(second).manifest == PlanFile.from_bytes(third).manifest
    timed, cached = PlanFile.from_bytes(first).manifest, PlanFile.from_bytes(second).manifest
    assert b'"status":"cached"' in cached
    assert timed == cached.replace(b'"status":"cached",', b"").replace(b',"status":"cached"', b"")


def test_the_second_identical_layer_of_a_network_is_not_timed_again() -> None:
    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input("x", dt.float32, (2, 3))
    one: list = []
    two: list = []
    y = network.add_plugin_v3([x], [], Cached(2.0, one)).get_output(0)
    z = network.add_plugin_v3([y], [], Cached(2.0, two)).get_output(0)
    network.mark_output(z)
    builder.build_serialized_network(network, builder.create_builder_config())
    assert [name for name, _ in one].count("enqueue") > 1
    assert [name for name, _ in two].count("enqueue") == 1


def test_a_plugin_without_an_id_is_timed_every_time() -> None:
    cache = dt.TimingCache()

    def use_cache(config: Any) -> None:
        config.set_timing_cache(cache, False)

    for _ in range(2):
        calls: list = []
        build_engine(Linear(calls=calls), PlainCreator("TestScale", Linear), configure=use_cache)
        assert "enqueue" in {name for name, _ in calls}
    assert not cache.query_keys()


def test_a_cache_miss_can_be_an_error() -> None:
    def demand(config: Any) -> None:
        config.set_flag(dt.BuilderFlag.ERROR_ON_TIMING_CACHE_MISS)

    with pytest.raises(dt.TimingCacheError, match="not in the timing cache"):
        _build(Cached(), configure=demand)


def test_a_crash_while_timing_loses_no_timings(tmp_path: Path) -> None:
    """The first layer's timings are in the file although the process died in the second."""
    path = tmp_path / "shared.timing"
    script = textwrap.dedent(
        f"""
        import os, signal, sys
        import dovetail as dt
        from tests.cpu.build.tune.test_plugins import Cached

        class Crashing(Cached):
            def enqueue(self, *args):
                os.kill(os.getpid(), signal.SIGKILL)

        builder = dt.Builder()
        network = builder.create_network()
        x = network.add_input("x", dt.float32, (2, 3))
        y = network.add_plugin_v3([x], [], Cached()).get_output(0)
        z = network.add_plugin_v3([y], [], Crashing(3.0)).get_output(0)
        z_plugin = network.get_layer(1).plugin
        z_plugin.plugin_name = "Other"
        network.mark_output(z)
        config = builder.create_builder_config()
        config.timing_cache_path = {str(path)!r}
        builder.build_serialized_network(network, config)
        """
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr
    calls: list = []

    def use_file(config: Any) -> None:
        config.timing_cache_path = path
        config.set_flag(dt.BuilderFlag.ERROR_ON_TIMING_CACHE_MISS)

    build_engine(Cached(calls=calls), PlainCreator("TestScale", Cached), shape=(2, 3), configure=use_file)
    assert [name for name, _ in calls].count("enqueue") == 1


class _StopAt(dt.IProgressMonitor):
    def __init__(self, phase: str) -> None:
        super().__init__()
        self.phase, self.open, self.seen = phase, [], []

    def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
        self.open.append(phase_name)
        self.seen.append((phase_name, parent_phase))

    def step_complete(self, phase_name: str, step: int) -> bool:
        return not phase_name.startswith(self.phase)

    def phase_finish(self, phase_name: str) -> None:
        self.open.remove(phase_name)


@pytest.mark.parametrize("phase", ["Optimise", "Analyse", "Tune", "Write"])
def test_a_progress_monitor_cancels_cleanly(phase: str) -> None:
    monitor = _StopAt(phase)
    calls: list = []

    def watch(config: Any) -> None:
        config.progress_monitor = monitor

    with pytest.raises(dt.BuildCancelledError):
        _build(Linear(calls=calls), configure=watch)
    assert not monitor.open
    assert any(name.startswith(phase) for name, _ in monitor.seen)
    names = [name for name, _ in calls]
    assert names.count("clone") - names.count("destroy") in (0, 1)


def test_vectorised_formats_give_the_same_results() -> None:
    class OnlyPacked(ScalePlugin):
        formats = (dt.TensorFormat.CHW32,)

    plan, runtime = build_engine(OnlyPacked(3.0), PlainCreator("TestScale", OnlyPacked), shape=(2, 5, 4, 3))
    engine = runtime.deserialize_cuda_engine(plan)
    kinds = [step.kind for step in engine.manifest.programs[0].steps]
    assert kinds == ["reformat", "plugin", "reformat"]
    x = np.random.default_rng(0).random((2, 5, 4, 3), np.float32)
    np.testing.assert_allclose(engine(x), x * 3, rtol=1e-6)
