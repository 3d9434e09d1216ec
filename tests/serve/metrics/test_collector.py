"""Metrics as Prometheus reads them, parsed back by its own reader."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from dovetail.provider.loader import get_provider, list_made, register_provider, unregister_provider
from dovetail.testing import HostDeviceFactory
from dovetail_serve.errors import QueueFullError, RunError, UnknownModelError
from dovetail_serve.metrics.endpoint import make_metrics_app
from dovetail_serve.metrics.observed import ObservedService
from dovetail_serve.protocol.documents import BatchStatistics, Duration, IndexEntry, ModelStatistics
from dovetail_serve.protocol.requests import InferRequest, InferResponse

MS = 1_000_000
HOSTILE = 'a"b\\c\n}'


class CountedService:
    """A service with statistics that are known, and failures on demand."""

    is_ready = True

    def statistics(self, name: str = "", version: str = "") -> Sequence[ModelStatistics]:
        batches = tuple(
            BatchStatistics(size, Duration(count, MS), Duration(count, MS), Duration(count, MS))
            for size, count in ((1, 5), (3, 2), (300, 1))
        )
        return [
            ModelStatistics(
                "m", "2", 0, 311, 8, Duration(10, 30 * MS), Duration(1, MS), Duration(11, 4 * MS), Duration(8, MS),
                Duration(8, 20 * MS), Duration(8, 2 * MS), cancelled=3, rejected=4, timed_out=5, queue_size=6,
                batches=batches,
            )
        ]  # fmt: skip

    def index(self, *, ready_only: bool = False) -> Sequence[IndexEntry]:
        return [IndexEntry("m", "2", "READY"), IndexEntry(HOSTILE, "1", "UNAVAILABLE", "damaged")]

    async def infer(self, request: InferRequest) -> InferResponse:
        raise {"full": QueueFullError, "none": UnknownModelError, "bad": RunError}[request.model]("no")


def _scrape(service: ObservedService, accept: str = "") -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(make_metrics_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            return await client.get("/metrics", headers={"Accept": accept})

    return asyncio.run(ask())


def _samples(text: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(f"{name}={value}" for name, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
def samples() -> dict[tuple[str, ...], float]:
    return _samples(_scrape(ObservedService(CountedService())).text)  # type: ignore[arg-type]


def test_requests_by_outcome(samples: dict[tuple[str, ...], float]) -> None:
    found = {key[2]: value for key, value in samples.items() if key[0] == "dovetail_requests_total"}
    outcomes = {"success": 10, "failed": 1, "rejected": 4, "timed_out": 5, "cancelled": 3}
    assert found == {f"outcome={name}": count for name, count in outcomes.items()}


def test_times_are_seconds(samples: dict[tuple[str, ...], float]) -> None:
    labels = ("model=m", "version=2")
    assert samples["dovetail_queue_seconds_sum", *labels] == pytest.approx(0.004)
    assert samples["dovetail_queue_seconds_count", *labels] == 11
    assert samples["dovetail_compute_seconds_sum", "model=m", "part=infer", "version=2"] == pytest.approx(0.02)
    assert samples["dovetail_request_seconds_sum", *labels] == pytest.approx(0.03)
    assert samples["dovetail_queue_length", *labels] == 6


def test_batch_sizes_are_a_histogram(samples: dict[tuple[str, ...], float]) -> None:
    buckets = {key[1]: value for key, value in samples.items() if key[0] == "dovetail_batch_size_bucket"}
    assert [buckets[f"le={limit}"] for limit in ("1.0", "2.0", "4.0", "256.0", "+Inf")] == [5, 5, 7, 7, 8]
    assert samples["dovetail_batch_size_sum", "model=m", "version=2"] == 5 + 6 + 300


def test_a_name_can_break_nothing(samples: dict[tuple[str, ...], float]) -> None:
    assert samples["dovetail_model_ready", f"model={HOSTILE}", "version=1"] == 0
    assert samples["dovetail_model_ready", "model=m", "version=2"] == 1


def test_failures_by_kind_without_names_that_clients_make_up() -> None:
    service = ObservedService(CountedService())  # type: ignore[arg-type]
    for model, kind in (("full", QueueFullError), ("full", QueueFullError), ("none", UnknownModelError)):
        with pytest.raises(kind):
            asyncio.run(service.infer(InferRequest(model, {})))
    samples = _samples(_scrape(service).text)
    found = {key[1:]: value for key, value in samples.items() if key[0] == "dovetail_failures_total"}
    assert found == {("kind=QueueFullError", "model=full"): 2, ("kind=UnknownModelError", "model="): 1}


def test_the_format_is_the_one_that_is_asked_for() -> None:
    service = ObservedService(CountedService())  # type: ignore[arg-type]
    assert _scrape(service).headers["content-type"].startswith("text/plain")
    answer = _scrape(service, "application/openmetrics-text; version=1.0.0")
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


@pytest.fixture
def device() -> Iterator[str]:
    factory = HostDeviceFactory()
    register_provider(factory)
    yield factory.name
    unregister_provider(factory.name)


def test_devices_tell_their_memory(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = get_provider(device)
    monkeypatch.setattr(type(made), "free_bytes", 1 << 30)
    assert made in list_made()
    samples = _samples(_scrape(ObservedService(CountedService())).text)  # type: ignore[arg-type]
    assert samples["dovetail_device_memory_free_bytes", f"device={device}"] == 1 << 30
