"""Clients that keep a server busy, and note what came of each request."""

from __future__ import annotations

import http.client
import itertools
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

__all__ = ["Load", "Sent", "ask"]


@dataclass(frozen=True)
class Sent:
    """One request that was answered, after it had been refused or lost by some replicas."""

    time_s: float
    seconds: float
    url: str
    value: float
    refused_by: tuple[str, ...]
    """Replicas that nobody could connect to."""
    broken_by: tuple[str, ...]
    """Replicas that ended with the request or the connection."""


@dataclass
class Load:
    """Threads that ask one replica after the other, and the next one where a replica cannot be reached."""

    urls: Callable[[], Sequence[str]]
    model: str
    threads: int = 3
    sent: list[Sent] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def __enter__(self) -> Load:
        self._stopped = threading.Event()
        self._running = [threading.Thread(target=self._ask_on, args=(start,)) for start in range(self.threads)]
        for thread in self._running:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._running:
            thread.join()

    def _ask_on(self, start: int) -> None:
        connections: dict[str, http.client.HTTPConnection] = {}
        for turn in itertools.count(start):
            if self._stopped.wait(0.005):
                return
            self._ask_any(turn, connections)

    def _ask_any(self, turn: int, connections: dict[str, http.client.HTTPConnection]) -> None:
        begin, refused, broken = time.monotonic(), [], []
        urls = list(self.urls())
        for url in (urls[turn % len(urls) :] + urls[: turn % len(urls)]) * 3:
            try:
                value = ask(url, self.model, connections)
            except (OSError, http.client.HTTPException) as error:
                (refused if isinstance(error, ConnectionRefusedError) else broken).append(url)
                connections.pop(url).close()
                continue
            except ValueError as error:
                self.failed.append(str(error))
                return
            now = time.monotonic()
            self.sent.append(Sent(now, now - begin, url, value, tuple(refused), tuple(broken)))
            return
        self.failed.append(f"nobody answers: {refused} {broken}")


def ask(url: str, model: str, connections: dict[str, http.client.HTTPConnection] | None = None) -> float:
    """The answer of one replica, which is a number.

    Raises:
        OSError: It cannot be reached.
        ValueError: It refuses.
    """
    kept = {} if connections is None else connections
    connection = kept.setdefault(url, http.client.HTTPConnection(urlsplit(url).netloc, timeout=60))
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 1]}]}
    connection.request("POST", f"/v2/models/{model}/infer", json.dumps(body))
    response = connection.getresponse()
    content = response.read()
    if connections is None:
        connection.close()
    if response.status != 200:
        raise ValueError(f"{response.status}: {content[:200]!r}")
    return float(json.loads(content)["outputs"][0]["data"][0])
