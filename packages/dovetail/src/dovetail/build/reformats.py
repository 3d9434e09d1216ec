"""What a reformat costs: measured once for each shape and pair of layouts, and cached."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.build.cache_session import CacheSession
from dovetail.build.enumerate import Layout
from dovetail.build.measure import Candidate, measure
from dovetail.build.timing_cache import TimingValue, make_reformat_key
from dovetail.build.tuner import PluginTuner, cache_identity, round_us
from dovetail.errors import TimingCacheError
from dovetail.formats import pack
from dovetail.plan.manifest import ValueRecord
from dovetail.runtime.steps.reformat import apply_reformat

__all__ = ["ReformatTimer"]


class ReformatTimer:
    """Times reformats on demand; zero for a tensor that is already as it is wanted."""

    def __init__(self, session: CacheSession, tuner: PluginTuner) -> None:
        self._session, self._tuner = session, tuner

    def time_us(self, dims: Sequence[int], source: Layout, target: Layout) -> float:
        """Microseconds to turn one layout into the other at these dims."""
        if source == target:
            return 0.0
        key = self._key(dims, source, target)
        known = self._session.cache.query(key)
        if known is None:
            known = self._measure(dims, source, target)
            self._session.record(key, known)
        return known.time_us if known.time_us is not None else float("inf")

    def _key(self, dims: Sequence[int], source: Layout, target: Layout) -> str:
        device, version = cache_identity()
        return make_reformat_key(
            device=device,
            provider_version=version,
            shape=tuple(dims),
            source=(source.dtype.name, f"{source.format.name}/{source.scale:.9g}"),
            target=(target.dtype.name, f"{target.format.name}/{target.scale:.9g}"),
        )

    def _measure(self, dims: Sequence[int], source: Layout, target: Layout) -> TimingValue:
        if self._session.error_on_miss:
            raise TimingCacheError(
                "the time of a reformat is not in the timing cache",
                got=f"{tuple(dims)} {source} -> {target}",
                fix="build once without the flag and keep the cache",
            )
        array = pack(np.zeros(dims, source.dtype.numpy), source.format)
        before, after = _record(source), _record(target)
        candidate = Candidate(
            id=0,
            prepare=lambda: None,
            run=lambda: _discard(apply_reformat(array, before, after, dims)),
            label=f"reformat {source} -> {target}",
        )
        self._tuner.num_timed += 1
        result = measure([candidate], timeout_s=self._tuner.timeout_s, worker=self._tuner.worker)[0]
        return TimingValue(time_us=round_us(result.median_us), status=result.status, reason=result.reason)


def _discard(_: object) -> None:
    """Forget a result."""


def _record(layout: Layout) -> ValueRecord:
    return ValueRecord(
        name="", dtype=layout.dtype.numpy.name, kind="dynamic", format=layout.format.name, scale=layout.scale
    )
