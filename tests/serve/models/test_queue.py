"""The queue: order, limits, and that no request is lost or taken twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from dovetail_serve.errors import QueueFullError
from dovetail_serve.models.pending import PendingRequest
from dovetail_serve.models.queue import RequestQueue
from dovetail_serve.protocol.requests import InferRequest

LIMIT = 12
MAX_SAMPLES = 4


def make(priority: int = 1, samples: int = 1, group: object = None, timeout_ns: int = 0) -> PendingRequest:
    now = time.perf_counter_ns()
    pending = PendingRequest(InferRequest("m", {}, priority=priority), (), samples, group, now)
    pending.deadline_ns = now + timeout_ns if timeout_ns else 0
    return pending


def make_wake() -> threading.Lock:
    wake = threading.Lock()
    wake.acquire()
    return wake


class QueueMachine(RuleBasedStateMachine):
    """The queue against a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = RequestQueue("m", LIMIT, MAX_SAMPLES)
        self.model: list[PendingRequest] = []
        self.gone: set[PendingRequest] = set()
        self.wake = make_wake()

    requests = Bundle("requests")

    @rule(target=requests, priority=st.integers(1, 3), samples=st.integers(1, 6), group=st.integers(0, 1))
    def put(self, priority: int, samples: int, group: int) -> PendingRequest:
        pending = make(priority, samples, group)
        if len(self.model) >= LIMIT:
            with pytest.raises(QueueFullError):
                self.queue.put(pending)
            self.gone.add(pending)
        else:
            self.queue.put(pending)
            self.model.append(pending)
        return pending

    @rule(pending=consumes(requests))
    def remove(self, pending: PendingRequest) -> None:
        assert self.queue.remove(pending) == (pending in self.model)
        if pending in self.model:
            self.model.remove(pending)
            self.gone.add(pending)

    @rule(pending=requests)
    def expire(self, pending: PendingRequest) -> None:
        if pending in self.model:
            pending.deadline_ns = 1

    @precondition(lambda self: any(not p.deadline_ns for p in self.model))
    @rule()
    def take(self) -> None:
        batch = self.queue.take(self.wake)
        assert batch is not None
        assert batch == self._expect()
        for pending in batch:
            assert pending not in self.gone
            self.gone.add(pending)
            self.model.remove(pending)
        self.model = [p for p in self.model if not p.is_expired]

    def _expect(self) -> list[PendingRequest]:
        ordered = [p for p in sorted(self.model, key=lambda p: p.priority) if not p.deadline_ns]
        mates = [p for p in ordered if p.group == ordered[0].group]
        taken, samples = mates[:1], mates[0].samples
        for pending in mates[1:]:
            if samples >= MAX_SAMPLES or samples + pending.samples > MAX_SAMPLES:
                break
            taken.append(pending)
            samples += pending.samples
        return taken

    @invariant()
    def counts(self) -> None:
        assert len(self.queue) == len(self.model)


TestQueue = QueueMachine.TestCase


def test_a_full_queue_refuses_at_once() -> None:
    queue = RequestQueue("m", 1)
    queue.put(make())
    with pytest.raises(QueueFullError, match="model 'm': 1 requests wait, and no more may"):
        queue.put(make())


def test_what_came_too_late_is_not_taken() -> None:
    queue = RequestQueue("m", 10, 4)
    late, good = make(timeout_ns=1), make()
    queue.put(late)
    queue.put(good)
    assert queue.take(make_wake()) == [good]
    assert late.is_expired
    assert not queue.remove(late)


def test_a_closed_queue_gives_what_waits_and_then_nothing() -> None:
    queue = RequestQueue("m", 10)
    pending = make()
    queue.put(pending)
    queue.close()
    wake = make_wake()
    assert queue.take(wake) == [pending]
    assert queue.take(wake) is None


def run_for(seconds: float, function: Callable[[], None]) -> float:
    start = time.perf_counter()
    function()
    took = time.perf_counter() - start
    assert took < seconds + 20
    return took


def test_the_first_waits_for_others_no_longer_than_the_delay() -> None:
    queue = RequestQueue("m", 10, 4, delay_ns=50_000_000)
    queue.put(make())
    assert run_for(0.05, lambda: queue.take(make_wake())) >= 0.03


def test_a_full_batch_does_not_wait() -> None:
    queue = RequestQueue("m", 10, 2, delay_ns=3_600_000_000_000)
    queue.put(make())
    threading.Timer(0.05, lambda: queue.put(make())).start()
    assert len(queue.take(make_wake()) or ()) == 2


@given(st.integers(1, 4), st.integers(1, 200), st.booleans())
def test_threads_take_every_request_once(workers: int, count: int, has_delay: bool) -> None:
    queue = RequestQueue("m", 1000, 3, delay_ns=100_000 if has_delay else 0)
    taken: list[PendingRequest] = []

    def work() -> None:
        wake = make_wake()
        while (batch := queue.take(wake)) is not None:
            taken.extend(batch)

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    sent = [make(priority=1 + i % 3, group=i % 2) for i in range(count)]
    removed = []
    for i, pending in enumerate(sent):
        queue.put(pending)
        if i % 5 == 0 and queue.remove(sent[i // 2]):
            removed.append(sent[i // 2])
    queue.close()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert len(taken) == len(set(taken))
    assert set(taken) | set(removed) == set(sent)
    assert not set(taken) & set(removed)
