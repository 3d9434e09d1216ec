"""How many replicas there should be, by how many requests wait."""

from __future__ import annotations

import math

from dovetail_serve.ray.options import RayOptions

__all__ = ["Scaler"]


class Scaler:
    """Grows at once and shrinks one by one, after a time in which nothing waited.

    >>> scaler = Scaler(RayOptions(replicas=1, max_replicas=4, queue_per_replica=8.0, quiet_s=60.0))
    >>> scaler.decide(1, waiting=30, now_s=0.0), scaler.decide(4, waiting=0, now_s=1.0)
    (4, 4)
    >>> scaler.decide(4, waiting=0, now_s=70.0), scaler.decide(3, waiting=0, now_s=71.0)
    (3, 3)
    """

    def __init__(self, options: RayOptions) -> None:
        self._options = options
        self._quiet_since_s: float | None = None

    def decide(self, current: int, *, waiting: int, now_s: float) -> int:
        """How many replicas there should be, where there are ``current`` and so many requests wait for them."""
        options = self._options
        if waiting > options.queue_per_replica * current:
            self._quiet_since_s = None
            return min(options.most_replicas, max(current + 1, math.ceil(waiting / options.queue_per_replica)))
        if waiting or current <= options.replicas:
            self._quiet_since_s = None
            return max(current, options.replicas)
        if self._quiet_since_s is None:
            self._quiet_since_s = now_s
        if now_s - self._quiet_since_s < options.quiet_s:
            return current
        self._quiet_since_s = now_s
        return current - 1
