"""Decides by what was measured: how many samples run together, and on which thread. Nothing here measures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dovetail.units import format_time
from dovetail_serve.models.measuring import Measurement
from dovetail_serve.repository.settings import ModelSettings

__all__ = ["BatchChoice", "choose_batching", "is_fast_enough_for_loop", "longest_on_loop"]

_PAYS: Final = 0.95
"""A batch pays when a sample in it takes at most this share of one alone; less is within what runs vary."""
_MOST_LOOP_NS: Final = 100_000
"""However long a change of threads was measured to take, nothing slower than this runs on the loop's thread."""


@dataclass(frozen=True)
class BatchChoice:
    """How many samples run together, and why."""

    max_samples: int
    reason: str


def choose_batching(settings: ModelSettings, measured: Measurement) -> BatchChoice:
    """The largest batch in which a sample takes less time than alone.

    >>> settings = ModelSettings(max_batch_size=4)
    >>> choose_batching(settings, Measurement({1: 100_000, 2: 110_000, 4: 130_000}))
    BatchChoice(max_samples=4, reason='up to 4 samples together: 1 100.0 us, 2 110.0 us, 4 130.0 us')
    >>> choose_batching(settings, Measurement({1: 100_000, 2: 205_000, 4: 410_000})).reason
    'requests one by one, as a sample takes no less time with others: 1 100.0 us, 2 205.0 us, 4 410.0 us'
    """
    most = settings.max_batch_size
    if not most:
        return BatchChoice(1, "requests one by one: max_batch_size is 0")
    shown = _show(measured)
    if settings.batching == "always":
        return BatchChoice(most, f"up to {most} samples together, as config.toml says{shown}")
    if 1 not in measured.times_ns:
        return BatchChoice(most, f"up to {most} samples together; nothing was measured: {measured.problem}")
    alone = measured.times_ns[1]
    paying = [size for size, ns in measured.times_ns.items() if size > 1 and ns <= alone * size * _PAYS]
    if not paying:
        return BatchChoice(1, f"requests one by one, as a sample takes no less time with others{shown}")
    return BatchChoice(max(paying), f"up to {max(paying)} samples together{shown}")


def is_fast_enough_for_loop(settings: ModelSettings, measured: Measurement, hop_ns: int) -> bool:
    """Whether a run of one sample takes less time than a worker thread needs to answer at all."""
    alone = measured.times_ns.get(1)
    return alone is not None and not settings.max_queue_delay_us and alone < longest_on_loop(hop_ns)


def longest_on_loop(hop_ns: int) -> int:
    """How long a run may take on the loop's thread.

    >>> [longest_on_loop(40_000), longest_on_loop(900_000)]
    [40000, 100000]
    """
    return min(hop_ns, _MOST_LOOP_NS)


def _show(measured: Measurement) -> str:
    if not measured.times_ns:
        return f" ({measured.problem})" if measured.problem else ""
    times = ", ".join(f"{size} {format_time(ns / 1e3)}" for size, ns in measured.times_ns.items())
    return f": {times}" + (f"; {measured.problem}" if measured.problem else "")
