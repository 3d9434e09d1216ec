"""The race: statistics on a clock that the candidates move themselves, and failures on a real one."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count, cycle, repeat
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.build.tune.candidates import TimedCandidate
from dovetail.build.tune.clocks import HostTimer
from dovetail.build.tune.measure import Measurement, measure, median_interval, pick_lowest
from dovetail.build.tune.worker import TimingWorker
from dovetail.errors import PluginError, UsageError


class FakeClock:
    """Time that passes only when a candidate says so, and a log of who ran."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.log: list[str] = []

    def __call__(self) -> int:
        return self.now_ns

    def candidate(self, number: int, times_us: Iterator[float]) -> TimedCandidate:
        def run() -> None:
            self.now_ns += round(next(times_us) * 1000)
            self.log.append(f"run {number}")

        return TimedCandidate(
            id=number, prepare=lambda: self.log.append(f"prepare {number}"), run=run, label=f"candidate {number}"
        )


def race(*times_us: float | Iterator[float], **options: float) -> tuple[list[Measurement], FakeClock]:
    clock = FakeClock()
    series = [repeat(t) if isinstance(t, int | float) else t for t in times_us]
    candidates = [clock.candidate(i, s) for i, s in enumerate(series)]
    return measure(candidates, timeout_s=10, clock=HostTimer(clock), **options), clock  # type: ignore[arg-type]


def nothing() -> None:
    pass


def test_a_fast_kernel_runs_about_a_hundred_times_and_a_slow_one_four() -> None:
    (fast, _), _ = race(10.0, 20.0)
    assert (fast.median_us, fast.runs, fast.rounds) == (10.0, 101, 4)
    (slow, slower), _ = race(100_000.0, 150_000.0)
    assert (slow.median_us, slow.runs, slow.rounds) == (100_000.0, 4, 4)
    assert slower.runs == 4
    (middle,), _ = race(1000.0)
    assert (middle.runs, middle.rounds) == (9, 4)


def test_bursts_follow_what_is_measured_and_not_a_slow_first_run() -> None:
    (result,), clock = race(iter([400_000.0, *repeat(10.0, 1000)]))
    assert result.median_us == 10.0
    assert result.high_us == 400_000.0
    bursts = [len(chunk.split()) // 2 for chunk in " ".join(clock.log).split("prepare 0") if chunk]
    assert bursts[:4] == [1, 1, 1, 25]


def test_min_runs_is_kept_by_longer_bursts() -> None:
    (slow,), _ = race(100_000.0, min_runs=12)
    (fast,), _ = race(10.0, min_runs=200)
    (one_round,), _ = race(10_000.0, min_runs=12, max_rounds=1)
    assert (slow.runs, fast.runs, one_round.runs) == (13, 201, 13)


def test_rounds_are_interleaved_turn_about_and_prepared() -> None:
    _, clock = race(5000.0, 5000.0, 5000.0)
    order = [int(line.split()[1]) for line in clock.log if line.startswith("run")]
    assert order[:9] == [0, 1, 2, 0, 1, 2, 2, 1, 0]
    assert clock.log[::2] == [line.replace("run", "prepare") for line in clock.log[1::2]]


def test_a_candidate_that_is_clearly_slower_leaves_and_the_others_go_on() -> None:
    noisy = cycle([100.0, 130.0, 90.0, 120.0, 110.0])
    likewise = cycle([130.0, 90.0, 120.0, 110.0, 100.0])
    results, _ = race(noisy, likewise, 500.0, target_burst_us=1.0)
    assert [r.rounds for r in results] == [15, 15, 4]
    assert [r.status for r in results] == ["timed"] * 3
    assert results[2].median_us == 500.0


def test_the_race_ends_when_the_intervals_separate() -> None:
    # The first four samples of both overlap; with nine, the interval leaves off the slowest of the first candidate.
    first = iter([100.0, 300.0, *repeat(100.0, 30)])
    results, _ = race(first, repeat(200.0), target_burst_us=1.0)
    assert [r.rounds for r in results] == [9, 9]
    assert (results[0].low_us, results[0].high_us) == (100.0, 100.0)


def test_candidates_that_tie_for_sure_are_not_run_fifteen_rounds() -> None:
    results, _ = race(100.0, 101.0, 100.5)
    assert {r.rounds for r in results} == {4}
    assert pick_lowest((r.id, r.median_us or 0.0) for r in results) == 0


def test_at_most_max_rounds() -> None:
    results, _ = race(cycle([100.0, 150.0]), cycle([150.0, 100.0]), target_burst_us=1.0, max_rounds=7)
    assert [r.rounds for r in results] == [7, 7]
    (one,), _ = race(100.0, max_rounds=1)
    assert one.rounds == 1
    assert one.runs >= 4


def test_a_clock_that_stands_still_is_survived() -> None:
    (result,), _ = race(0.0)
    assert result.median_us == 0.0


def test_no_candidates() -> None:
    assert measure([], timeout_s=1) == []


def test_ties_go_to_the_lower_id() -> None:
    results, _ = race(102.0, 100.0)
    assert pick_lowest((r.id, r.median_us or 0.0) for r in results) == 0
    results, _ = race(102.1, 100.0)
    assert pick_lowest((r.id, r.median_us or 0.0) for r in results) == 1
    assert pick_lowest([(5, 1.0), (4, 1.0), (9, 0.5)]) == 9


@given(st.dictionaries(st.integers(0, 9), st.floats(0, 1e9), min_size=1))
def test_the_pick_is_the_lowest_of_those_near_the_best(times_us: dict[int, float]) -> None:
    best = min(times_us.values())
    picked = pick_lowest(times_us.items())
    assert times_us[picked] <= best * 1.02
    assert all(number >= picked for number, time_us in times_us.items() if time_us <= best * 1.02)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20))
def test_the_interval_holds_the_median(samples: list[float]) -> None:
    low, high = median_interval(samples)
    assert min(samples) <= low <= median(samples) <= high <= max(samples)


@pytest.mark.parametrize("count_", range(6, 25))
def test_the_interval_covers_95_percent_and_no_rank_more(count_: int) -> None:
    low, high = median_interval([float(i) for i in range(count_)])
    assert low == count_ - 1 - high

    def tails(ranks: int) -> float:
        return 2 * sum(math.comb(count_, i) for i in range(ranks + 1)) / 2**count_

    assert tails(int(low)) <= 0.05 < tails(int(low) + 1)


def test_nothing_timed_names_every_reason() -> None:
    def broken() -> None:
        raise ValueError("wrong shape\nmore")

    results = measure([TimedCandidate(id=3, prepare=nothing, run=broken, label="t3")], timeout_s=5)
    assert (results[0].status, results[0].median_us) == ("failed", None)
    assert (results[0].reason or "").startswith("run: ValueError: wrong shape")


def test_a_failure_has_type_text_and_place_and_the_others_go_on() -> None:
    def broken() -> None:
        raise ZeroDivisionError("never")

    line = broken.__code__.co_firstlineno + 1
    candidates = [
        TimedCandidate(id=0, prepare=nothing, run=broken, label="a"),
        TimedCandidate(id=1, prepare=broken, run=nothing, label="b"),
        TimedCandidate(id=2, prepare=nothing, run=nothing, label="c"),
    ]
    first, second, third = measure(candidates, timeout_s=5)
    assert first.reason == f"run: ZeroDivisionError: never ({__file__}:{line})"
    assert second.reason == f"prepare: ZeroDivisionError: never ({__file__}:{line})"
    assert (first.status, first.median_us, first.low_us, first.runs) == ("failed", None, None, 0)
    assert third.status == "timed"
    assert third.median_us is not None


def test_a_wrapped_failure_is_placed_where_it_began_and_once() -> None:
    def broken() -> None:
        raise ZeroDivisionError("never")

    place = f"{__file__}:{broken.__code__.co_firstlineno + 1}"

    def wrapped() -> None:
        try:
            broken()
        except ZeroDivisionError as error:
            raise PluginError("enqueue raised", where=place, fix="look") from error

    (result,) = measure([TimedCandidate(id=0, prepare=nothing, run=wrapped, label="a")], timeout_s=5)
    assert result.reason == f"run: PluginError: {place}: enqueue raised"


def test_a_candidate_that_fails_later_has_no_time() -> None:
    calls = count()

    def sometimes() -> None:
        if next(calls) == 30:
            raise MemoryError("full")

    (result,) = measure([TimedCandidate(id=0, prepare=nothing, run=sometimes, label="a")], timeout_s=5)
    assert (result.status, result.median_us) == ("failed", None)
    assert "MemoryError" in (result.reason or "")


def test_a_candidate_that_exits_has_failed() -> None:
    (result,) = measure([TimedCandidate(id=0, prepare=nothing, run=lambda: exit(1), label="a")], timeout_s=5)
    assert (result.status, "SystemExit" in (result.reason or "")) == ("failed", True)


def spin() -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("hang", "fate"),
    [
        (spin, "it was stopped"),
        (lambda: time.sleep(3600), "its thread was abandoned"),
        (lambda: threading.Event().wait(), "its thread was abandoned"),
    ],
    ids=["spin", "sleep", "wait"],
)
def test_a_candidate_that_hangs_is_out_and_the_others_are_timed(hang: Callable[[], None], fate: str) -> None:
    candidates = [
        TimedCandidate(id=0, prepare=nothing, run=nothing, label="a"),
        TimedCandidate(id=1, prepare=nothing, run=hang, label="b"),
        TimedCandidate(id=2, prepare=hang, run=nothing, label="c"),
    ]
    with TimingWorker(grace_s=0.2) as worker:
        first, second, third = measure(candidates, timeout_s=0.4, worker=worker)
    assert first.status == "timed"
    assert (second.status, third.status) == ("timeout", "timeout")
    assert second.reason is not None
    assert second.reason.startswith("run: the call did not end within 0.4 s")
    assert fate in second.reason
    assert (third.reason or "").startswith("prepare: ")
    assert worker.abandoned == (0 if "stopped" in fate.split()[-1] else 2)


def test_the_limit_is_for_one_run_and_not_for_all() -> None:
    candidate = TimedCandidate(id=0, prepare=nothing, run=lambda: time.sleep(0.15), label="a")
    (result,) = measure([candidate], timeout_s=0.5)
    assert result.status == "timed"
    assert result.median_us is not None
    assert result.median_us > 140_000


def test_all_runs_come_from_the_thread_of_the_worker() -> None:
    seen: set[int] = set()

    def look() -> None:
        seen.add(threading.get_ident())

    with TimingWorker() as worker:
        measure([TimedCandidate(id=0, prepare=look, run=look, label="a")], timeout_s=5, worker=worker)
        assert seen == {worker.call(threading.get_ident, 5)}


def test_the_worker_costs_nothing_that_is_timed() -> None:
    (result,) = measure([TimedCandidate(id=0, prepare=nothing, run=nothing, label="a")], timeout_s=5)
    assert result.low_us is not None
    assert result.low_us < 5.0


@pytest.mark.parametrize(
    "options", [{"max_rounds": 0}, {"min_runs": 0}, {"target_burst_us": 0.0}, {"timeout_s": 0.0}], ids=str
)
def test_nonsense_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        measure([], **{"timeout_s": 1.0, **options})  # type: ignore[arg-type]


def test_ids_are_unique() -> None:
    candidate = TimedCandidate(id=1, prepare=nothing, run=nothing, label="a")
    with pytest.raises(UsageError, match="same id"):
        measure([candidate, candidate], timeout_s=1)


def test_a_closed_worker_is_an_error_and_not_a_failed_candidate() -> None:
    worker = TimingWorker()
    worker.close()
    with pytest.raises(UsageError, match="closed"):
        measure([TimedCandidate(id=1, prepare=nothing, run=nothing, label="a")], timeout_s=1, worker=worker)
