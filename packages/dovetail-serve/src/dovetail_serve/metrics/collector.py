"""Metrics for Prometheus, made from statistics when they are asked for: a request pays nothing for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    SummaryMetricFamily,
)

from dovetail.errors import DovetailError
from dovetail.provider.interfaces import Provider
from dovetail.provider.loader import list_made
from dovetail_serve import __version__
from dovetail_serve.metrics.observed import ObservedService
from dovetail_serve.protocol.documents import BatchStatistics, Duration, IndexEntry, ModelStatistics

__all__ = ["ServiceCollector"]

_LABELS: Final = ("model", "version")
_BUCKETS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_NS: Final = 1e-9


class ServiceCollector:
    """What prometheus-client asks for metrics."""

    def __init__(self, service: ObservedService) -> None:
        self._service = service

    def collect(self) -> Iterator[Any]:
        """Every family, from the statistics of this moment."""
        statistics = self._service.statistics()
        yield _info()
        yield _states(self._service.index())
        yield _requests(statistics)
        yield _failures(self._service.failures)
        yield from _counts(statistics)
        yield from _durations(statistics)
        yield _batch_sizes(statistics)
        yield from _device_memory(list_made())


def _info() -> Any:
    family = GaugeMetricFamily("dovetail_serve_info", "The server, always 1.", labels=("version",))
    family.add_metric((__version__,), 1)
    return family


def _states(index: Iterable[IndexEntry]) -> Any:
    text = "Whether a version of a model can run."
    family = GaugeMetricFamily("dovetail_model_ready", text, labels=_LABELS)
    for entry in index:
        family.add_metric((entry.name, entry.version), entry.state == "READY")
    return family


def _requests(statistics: Iterable[ModelStatistics]) -> Any:
    text = "Requests that reached a model, by how they ended."
    family = CounterMetricFamily("dovetail_requests", text, labels=(*_LABELS, "outcome"))
    for model in statistics:
        outcomes = {
            "success": model.success.count,
            "failed": model.fail.count,
            "rejected": model.rejected,
            "timed_out": model.timed_out,
            "cancelled": model.cancelled,
        }
        for outcome, count in outcomes.items():
            family.add_metric((model.name, model.version, outcome), count)
    return family


def _failures(failures: Mapping[tuple[str, str], int]) -> Any:
    text = "Inference requests that were answered with an error, by its kind; without a model where there is none."
    family = CounterMetricFamily("dovetail_failures", text, labels=("model", "kind"))
    for (model, kind), count in sorted(failures.items()):
        family.add_metric((model, kind), count)
    return family


def _counts(statistics: Iterable[ModelStatistics]) -> Iterator[Any]:
    samples = CounterMetricFamily("dovetail_samples", "Samples that were computed.", labels=_LABELS)
    runs = CounterMetricFamily("dovetail_runs", "Runs of the engine.", labels=_LABELS)
    waiting = GaugeMetricFamily("dovetail_queue_length", "Requests that wait.", labels=_LABELS)
    for model in statistics:
        samples.add_metric((model.name, model.version), model.inference_count)
        runs.add_metric((model.name, model.version), model.execution_count)
        waiting.add_metric((model.name, model.version), model.queue_size)
    return iter((samples, runs, waiting))


def _durations(statistics: Iterable[ModelStatistics]) -> Iterator[Any]:
    request = SummaryMetricFamily("dovetail_request_seconds", "From the queue to the response.", labels=_LABELS)
    queue = SummaryMetricFamily("dovetail_queue_seconds", "How long requests waited.", labels=_LABELS)
    text = "How long requests took to compute, by part: input, infer, output."
    compute = SummaryMetricFamily("dovetail_compute_seconds", text, labels=(*_LABELS, "part"))
    for model in statistics:
        labels = (model.name, model.version)
        _add(request, labels, model.success)
        _add(queue, labels, model.queue)
        _add(compute, (*labels, "input"), model.compute_input)
        _add(compute, (*labels, "infer"), model.compute_infer)
        _add(compute, (*labels, "output"), model.compute_output)
    return iter((request, queue, compute))


def _add(family: Any, labels: tuple[str, ...], duration: Duration) -> None:
    family.add_metric(labels, duration.count, duration.ns * _NS)


def _batch_sizes(statistics: Iterable[ModelStatistics]) -> Any:
    family = HistogramMetricFamily("dovetail_batch_size", "Samples of one run.", labels=_LABELS)
    for model in statistics:
        buckets, total = _bucket(model.batches)
        family.add_metric((model.name, model.version), buckets, total)
    return family


def _bucket(batches: Iterable[BatchStatistics]) -> tuple[list[tuple[str, int]], int]:
    """Cumulative counts by the largest size of each bucket, and the sum of all sizes."""
    sizes = [(batch.batch_size, batch.compute_infer.count) for batch in batches]
    buckets = [(str(float(limit)), sum(count for size, count in sizes if size <= limit)) for limit in _BUCKETS]
    buckets.append(("+Inf", sum(count for _, count in sizes)))
    return buckets, sum(size * count for size, count in sizes)


def _device_memory(providers: Iterable[Provider]) -> Iterator[Any]:
    free = GaugeMetricFamily("dovetail_device_memory_free_bytes", "Memory that a device has left.", labels=("device",))
    total = GaugeMetricFamily("dovetail_device_memory_bytes", "Memory of a device.", labels=("device",))
    for name, provider in {each.id: each for each in providers if not each.memory.is_host}.items():
        if (left := _free_bytes(provider)) is not None:
            free.add_metric((name,), left)
        if provider.device.memory_bytes is not None:
            total.add_metric((name,), provider.device.memory_bytes)
    return iter((free, total))


def _free_bytes(provider: Provider) -> int | None:
    """What a device says; one that is lost must not take the other metrics with it."""
    try:
        return provider.free_bytes
    except DovetailError:
        return None
