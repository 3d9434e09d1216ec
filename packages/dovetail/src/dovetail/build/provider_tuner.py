"""Choosing among the candidates of a provider: timed where they will run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dovetail.build.measure import Candidate as TimedCandidate
from dovetail.build.measure import TimingWorker, measure, pick_fastest
from dovetail.errors import BuildError
from dovetail.provider.calls import call
from dovetail.provider.interfaces import Candidate, Chosen, Provider, Stream, Tuner

__all__ = ["ProviderTuner"]


class ProviderTuner(Tuner):
    """Times the candidates of one provider on a stream of its own."""

    def __init__(self, provider: Provider, *, timeout_s: float) -> None:
        self._provider = provider
        self._timeout_s = timeout_s
        self._stream: Stream | None = None
        self._worker: TimingWorker | None = None

    @property
    def stream(self) -> Stream | None:
        """The stream, made when it is first asked for."""
        if self._stream is None:
            self._stream = call(self._provider.id, "create_stream", self._provider.create_stream)
        return self._stream

    def choose(
        self, question: str, candidates: Sequence[Candidate], *, reference: Sequence[Any] | None = None
    ) -> Chosen:
        """Choose the fastest candidate."""
        if not candidates:
            raise BuildError("there is no candidate", where=f"provider '{self._provider.id}', {question}")
        if len(candidates) == 1:
            return Chosen(name=candidates[0].name, time_us=None)
        if self._worker is None:
            self._worker = TimingWorker()
        timed = [self._prepare(number, candidate) for number, candidate in enumerate(candidates)]
        try:
            results = measure(timed, timeout_s=self._timeout_s, worker=self._worker)
        finally:
            for candidate in candidates:
                candidate.close()
        best = pick_fastest(results)
        return Chosen(name=candidates[best].name, time_us=results[best].median_us)

    def _prepare(self, number: int, candidate: Candidate) -> TimedCandidate:
        runs: list[Callable[[], None]] = []

        def prepare() -> None:
            if not runs:
                runs.append(candidate.start())

        def run() -> None:
            runs[0]()
            if self.stream is not None:
                self.stream.synchronize()

        return TimedCandidate(id=number, prepare=prepare, run=run, label=candidate.name)

    def close(self) -> None:
        """End the thread and the stream."""
        if self._worker is not None:
            self._worker.close()
        if self._stream is not None:
            self._stream.close()
