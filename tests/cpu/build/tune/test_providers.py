"""What a provider gets when it asks the tuner: the fastest right candidate, kept timings, closed candidates."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail as dt
from dovetail.build.config import BuilderConfig, BuilderFlag
from dovetail.build.tune.providers import ProviderTuner, TuningTables
from dovetail.build.tune.session import CacheSession
from dovetail.build.tune.tuner import CandidateTuner, TunerOptions
from dovetail.errors import BuildError, ProviderError, TimingCacheError
from dovetail.loggers import Logger
from dovetail.plan.inspect import inspect_plan
from dovetail.provider.interfaces import BuildContext, BuiltPartition, Candidate
from dovetail.testing import HostDevice, host_device

OPTIONS = TunerOptions(timeout_s=5, workspace_bytes=0, max_tactics=-1, error_on_cache_miss=False, strict=False)
RIGHT = np.arange(4, dtype=np.float32)


@dataclass
class Ways:
    """Candidates that take a time on the device, and what was done with them."""

    device: HostDevice
    tuner: ProviderTuner
    started: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)

    def way(self, name: str, work_s: float = 0.0, *, gives: Any = RIGHT, fails: str = "", **rest: Any) -> Candidate:
        def start() -> Callable[[], None]:
            self.started.append(name)
            if fails == "start":
                raise RuntimeError("no such kernel")
            return run

        def run() -> None:
            if fails == "run":
                raise RuntimeError("launch failed")
            assert self.tuner.stream is not None
            stream = self.device.find_stream(self.tuner.stream.handle)
            stream.submit(name, lambda: time.sleep(work_s))

        results = None if gives is None else lambda: [gives]
        return Candidate(name=name, start=start, results=results, close=lambda: self.closed.append(name), **rest)


@pytest.fixture
def device() -> Iterator[HostDevice]:
    with host_device() as made:
        yield made


@pytest.fixture
def cache() -> dt.ITimingCache:
    return dt.ITimingCache()


@pytest.fixture
def make(device: HostDevice, cache: dt.ITimingCache) -> Iterator[Callable[..., Ways]]:
    made: list[CandidateTuner] = []

    def make_ways(**options: Any) -> Ways:
        config = BuilderConfig()
        config.set_timing_cache(cache)
        made.append(CandidateTuner(replace(OPTIONS, **options), CacheSession(config, Logger()), Logger()))
        return Ways(device, ProviderTuner(device, made[-1], TuningTables()))

    yield make_ways
    for tuner in made:
        tuner.close()


def _table(ways: Ways) -> dict[str, Any]:
    (table,) = ways.tuner._tables.records
    return {row.name: row for row in table.candidates}


def test_the_fastest_on_the_device_is_chosen_and_the_table_kept(make: Callable[..., Ways]) -> None:
    ways = make()
    chosen = ways.tuner.choose("MatMul 4x4", [ways.way("slow", 0.004), ways.way("fast", 0.001)])
    assert chosen.name == "fast"
    assert chosen.time_us is not None
    assert 1000 <= chosen.time_us < 4000
    assert [row.chosen for row in _table(ways).values()] == [False, True]
    assert ways.closed == ["slow", "fast"]


def test_what_the_cache_knows_is_not_started(
    make: Callable[..., Ways], cache: dt.ITimingCache, device: HostDevice
) -> None:
    first = make()
    first.tuner.choose("q", [first.way("a", 0.002), first.way("b")])
    assert sorted(cache.query_keys()) == [
        f"choice|{device.device.fingerprint}|host_device|{dt.__version__}|q|{name}" for name in "ab"
    ]
    again = make(error_on_cache_miss=True)
    chosen = again.tuner.choose("q", [again.way("a", 0.002), again.way("b")])
    assert (chosen.name, again.started, again.closed) == ("b", [], ["a", "b"])
    assert _table(again)["a"].time_us == _table(first)["a"].time_us


def test_a_reference_is_computed_where_something_is_timed(make: Callable[..., Ways]) -> None:
    computed: list[bool] = []

    def compute() -> list[Any]:
        computed.append(True)
        return [RIGHT]

    for expected in (1, 1):
        ways = make()
        candidates = [ways.way("wrong", gives=RIGHT + 1), ways.way("right", 0.002)]
        assert ways.tuner.choose("q", candidates, reference=compute).name == "right"
        assert len(computed) == expected


def test_for_a_device_that_is_not_here_nothing_starts(make: Callable[..., Ways], device: HostDevice) -> None:
    first = make()
    first.tuner.choose("known", [first.way("a", 0.004), first.way("b")])
    device.is_here = False
    ways = make()
    assert ways.tuner.choose("known", [ways.way("c"), ways.way("a"), ways.way("b")]).name == "b"
    again = make()
    chosen = again.tuner.choose("new", [again.way("a"), again.way("b")])
    assert (chosen.name, chosen.time_us) == ("a", None)
    assert (ways.started, again.started) == ([], [])
    assert again.closed == ["a", "b"]
    assert [row.status for row in _table(again).values()] == ["untimed", "refused"]


def test_a_miss_is_an_error_where_it_was_asked_for(make: Callable[..., Ways]) -> None:
    ways = make(error_on_cache_miss=True)
    with pytest.raises(TimingCacheError, match="provider 'host_device', q"):
        ways.tuner.choose("q", [ways.way("a"), ways.way("b")])
    assert (ways.started, ways.closed) == ([], ["a", "b"])


def test_a_wrong_or_failing_one_is_skipped_and_recorded(make: Callable[..., Ways]) -> None:
    ways = make()
    candidates = [
        ways.way("cannot start", fails="start"),
        ways.way("cannot run", fails="run"),
        ways.way("wrong", gives=RIGHT + 1),
        ways.way("right", 0.002),
    ]
    assert ways.tuner.choose("q", candidates, reference=[RIGHT]).name == "right"
    rows = _table(ways)
    assert [row.status for row in rows.values()] == ["failed", "failed", "wrong", "timed"]
    assert "no such kernel" in rows["cannot start"].reason
    assert "launch failed" in rows["cannot run"].reason
    assert "reference" in rows["wrong"].reason
    assert len(ways.closed) == 4


def test_without_a_reference_the_majority_decides(make: Callable[..., Ways]) -> None:
    ways = make()
    candidates = [ways.way("wrong", gives=RIGHT * 2), ways.way("a", 0.002), ways.way("b", 0.008)]
    assert ways.tuner.choose("q", candidates).name == "a"


def test_a_newcomer_is_held_against_one_that_was_right_before(make: Callable[..., Ways]) -> None:
    first = make()
    first.tuner.choose("q", [first.way("a", 0.002), first.way("b", 0.008)])
    second = make()
    candidates = [second.way("a", 0.002), second.way("b", 0.008), second.way("new", gives=RIGHT * 2)]
    assert second.tuner.choose("q", candidates).name == "a"
    assert second.started == ["new", "a"]
    assert _table(second)["new"].status == "wrong"


def test_looser_arithmetic_says_how_loose(make: Callable[..., Ways]) -> None:
    ways = make()
    loose = RIGHT * np.float32(1.001)
    candidates = [ways.way("a", 0.003), ways.way("tf32", gives=loose, tolerance=2e-3), ways.way("b", gives=loose)]
    assert ways.tuner.choose("q", candidates, reference=[RIGHT]).name == "tf32"
    assert _table(ways)["b"].status == "wrong"


def test_when_all_fail_the_error_has_the_table(make: Callable[..., Ways]) -> None:
    ways = make()
    with pytest.raises(BuildError) as caught:
        ways.tuner.choose(
            "MatMul 4x4", [ways.way("a", fails="start"), ways.way("b", gives=RIGHT + 1)], reference=[RIGHT]
        )
    text = str(caught.value)
    assert "a: failed (prepare: RuntimeError: no such kernel" in text
    assert "b: wrong (differs from the reference" in text
    assert "MatMul 4x4" in text


def test_one_that_hangs_is_given_up(make: Callable[..., Ways]) -> None:
    ways = make(timeout_s=0.3)
    hang = replace(ways.way("hangs"), start=lambda: lambda: threading.Event().wait())  # type: ignore[arg-type,return-value]
    assert ways.tuner.choose("q", [hang, ways.way("works")]).name == "works"
    assert _table(ways)["hangs"].status == "timeout"


def test_a_single_candidate_is_taken_as_it_is(make: Callable[..., Ways]) -> None:
    ways = make()
    chosen = ways.tuner.choose("q", [ways.way("a")])
    assert (chosen.name, chosen.time_us, ways.started, ways.closed) == ("a", None, [], ["a"])
    assert _table(ways)["a"].status == "untimed"


def test_the_limit_of_tactics_holds(make: Callable[..., Ways]) -> None:
    ways = make(max_tactics=2)
    candidates = [ways.way("a", 0.004), ways.way("b", 0.002), ways.way("c")]
    assert ways.tuner.choose("q", candidates).name == "b"
    assert "c" not in ways.started


def test_mistakes_of_the_provider_are_told(make: Callable[..., Ways]) -> None:
    ways = make()
    with pytest.raises(BuildError, match="there is no candidate"):
        ways.tuner.choose("q", [])
    with pytest.raises(ProviderError, match="two candidates have one name"):
        ways.tuner.choose("q", [ways.way("a"), ways.way("a")])


def test_one_that_cannot_be_closed_does_not_keep_the_others_open(make: Callable[..., Ways]) -> None:
    def refuse() -> None:
        raise RuntimeError("still in use")

    ways = make()
    assert ways.tuner.choose("q", [replace(ways.way("a"), close=refuse), ways.way("b", 0.002)]).name == "a"
    assert ways.closed == ["b"]


def test_questions_from_threads_that_compile_take_turns(make: Callable[..., Ways]) -> None:
    ways = make()
    threads = [
        threading.Thread(target=lambda n=n: ways.tuner.choose(f"q{n}", [ways.way("a", 0.001), ways.way("b")]))
        for n in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    chosen = [[row.name for row in table.candidates if row.chosen] for table in ways.tuner._tables.records]
    assert chosen == [["b"]] * 3


def _choose_while_building(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_plainly = HostDevice.build_partition

    def build(self: HostDevice, model: Any, context: BuildContext) -> BuiltPartition:
        ways = Ways(self, context.tuner)  # type: ignore[arg-type]
        context.tuner.choose("Relu 2x2", [ways.way("vector", 0.003), ways.way("scalar")])
        return compile_plainly(self, model, context)

    monkeypatch.setattr(HostDevice, "build_partition", build)


def _network(builder: dt.Builder) -> dt.INetworkDefinition:
    network = builder.create_network()
    relu = network.add_activation(network.add_input("x", dt.float32, (2, 2)), dt.ActivationType.RELU)
    network.mark_output(relu.get_output(0))
    return network


def _config(*flags: BuilderFlag) -> BuilderConfig:
    config = BuilderConfig()
    config.providers = ["host_device", "cpu"]
    for flag in flags:
        config.set_flag(flag)
    return config


def test_the_tables_are_in_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _choose_while_building(monkeypatch)
    builder, path = dt.Builder(), tmp_path / "net.plan"
    with host_device(compiles=True):
        plan = builder.build_serialized_network(_network(builder), _config(BuilderFlag.DISABLE_TIMING_CACHE))
        path.write_bytes(bytes(plan))
        (table,) = inspect_plan(path)["tuning"]
    assert table["layer"] == "Relu 2x2"
    assert [(row["name"], row["status"], row["chosen"]) for row in table["candidates"]] == [
        ("vector", "timed", False),
        ("scalar", "timed", True),
    ]


def test_a_miss_ends_the_build_and_is_not_a_node_that_cannot_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    _choose_while_building(monkeypatch)
    builder = dt.Builder()
    with host_device(compiles=True), pytest.raises(TimingCacheError, match="Relu 2x2"):
        builder.build_plan(_network(builder), _config(BuilderFlag.ERROR_ON_TIMING_CACHE_MISS))
