"""What is decided by what was measured."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dovetail_serve.models.choices import choose_batching, is_fast_enough_for_loop
from dovetail_serve.models.measuring import Measurement, batch_sizes, measure_batches, measure_hop
from dovetail_serve.repository.settings import ModelSettings

TIMES = st.integers(1, 10**10)


@given(st.integers(1, 64), st.data())
def test_a_batch_is_chosen_only_where_a_sample_takes_less_time(most: int, data: st.DataObject) -> None:
    times = {size: data.draw(TIMES) for size in batch_sizes(most)}
    chosen = choose_batching(ModelSettings(max_batch_size=most), Measurement(times))
    assert chosen.max_samples in times
    if chosen.max_samples > 1:
        assert times[chosen.max_samples] < times[1] * chosen.max_samples
    else:
        assert all(ns > times[1] * size * 0.95 for size, ns in times.items() if size > 1)


def test_the_config_may_insist() -> None:
    slow = Measurement({1: 100, 2: 1000, 4: 4000})
    chosen = choose_batching(ModelSettings(max_batch_size=4, batching="always"), slow)
    assert chosen.max_samples == 4
    assert "as config.toml says" in chosen.reason


def test_without_a_measurement_the_config_is_believed() -> None:
    chosen = choose_batching(ModelSettings(max_batch_size=4), Measurement(problem="no shapes"))
    assert chosen.max_samples == 4
    assert chosen.reason.endswith("nothing was measured: no shapes")


def test_only_what_is_faster_than_a_change_of_threads_runs_on_the_loop() -> None:
    settings = ModelSettings()
    assert is_fast_enough_for_loop(settings, Measurement({1: 5_000}), 40_000)
    assert not is_fast_enough_for_loop(settings, Measurement({1: 50_000}), 40_000)
    assert not is_fast_enough_for_loop(settings, Measurement({1: 200_000}), 10**9)
    assert not is_fast_enough_for_loop(settings, Measurement(), 40_000)
    assert not is_fast_enough_for_loop(ModelSettings(max_queue_delay_us=1), Measurement({1: 5_000}), 40_000)


def test_every_size_is_run_and_timed() -> None:
    runs: list[int] = []
    measured = measure_batches(runs.append, 6)
    assert list(measured.times_ns) == [1, 2, 4, 6]
    assert set(runs) == {1, 2, 4, 6}
    assert all(runs.count(size) >= 3 for size in (1, 2, 4, 6))


def test_a_change_of_threads_takes_time() -> None:
    assert 1_000 < measure_hop() < 1_000_000_000
