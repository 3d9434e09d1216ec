"""What a reformat costs: measured once for each shape and pair of layouts, and cached."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.build.tune.candidates import Candidate
from dovetail.build.tune.combinations import Layout
from dovetail.build.tune.keys import make_reformat_key
from dovetail.build.tune.session import identify
from dovetail.build.tune.tuner import CandidateTuner
from dovetail.formats import pack
from dovetail.plan.manifest import ValueRecord
from dovetail.provider.interfaces import Provider
from dovetail.runtime.steps.reformat import apply_reformat

__all__ = ["ReformatTimer"]


class ReformatTimer:
    """Times reformats on demand; zero for a tensor that is already as it is wanted.

    Args:
        tuner: Who measures and remembers.
        host: The provider that runs reformats.
    """

    def __init__(self, tuner: CandidateTuner, host: Provider) -> None:
        self._tuner, self._host = tuner, host

    def time_us(self, dims: Sequence[int], source: Layout, target: Layout) -> float:
        """Microseconds to turn one layout into the other at these dims; infinite where that cannot be done."""
        if source == target:
            return 0.0
        where = f"reformat of {tuple(dims)}"
        candidate = self._make_candidate(dims, source, target)
        outcome = self._tuner.time(where, [candidate], self._tuner.find_lane(self._host))[candidate.id]
        return outcome.time_us if outcome.time_us is not None else float("inf")

    def _make_candidate(self, dims: Sequence[int], source: Layout, target: Layout) -> Candidate:
        before, after = _record(source), _record(target)
        arrays: list[np.ndarray] = []

        def prepare() -> None:
            if not arrays:
                arrays.append(pack(np.zeros(dims, source.dtype.numpy), source.format))

        def run() -> None:
            apply_reformat(arrays[0], before, after, dims)

        label = f"{source} -> {target}"
        return Candidate(id=0, label=label, prepare=prepare, run=run, key=self._make_key(dims, source, target))

    def _make_key(self, dims: Sequence[int], source: Layout, target: Layout) -> str:
        device, version = identify(self._host)
        return make_reformat_key(
            device=device,
            provider_version=version,
            shape=tuple(dims),
            source=(source.dtype.name, f"{source.format.name}/{source.scale:.9g}"),
            target=(target.dtype.name, f"{target.format.name}/{target.scale:.9g}"),
        )


def _record(layout: Layout) -> ValueRecord:
    return ValueRecord(
        name="", dtype=layout.dtype.numpy.name, kind="dynamic", format=layout.format.name, scale=layout.scale
    )
