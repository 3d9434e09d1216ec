"""Plans of cuDNN for convolutions: built when they are first asked for, and kept on disk beside the kernels."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Final

import msgspec

from dovetail_cuda.compile.store import read_record, write_record
from dovetail_cuda.run.convolutions import MOST_WORKSPACE_BYTES, BuiltConvPlan, Convolution
from dovetail_cuda.run.cudnn import ConvLibrary, ConvSearch

__all__ = ["ConvPlanFinder", "FoundPlans", "make_search"]

_COUNT: Final = 6
"""The plans of a heuristic that are tried."""
_FORMAT: Final = 1
"""Changes when the meaning of a record does, so that no older entry of a store is used."""


class FoundPlans(msgspec.Struct, frozen=True, kw_only=True):
    """What a store keeps for a convolution."""

    plans: list[BuiltConvPlan]


def make_search(*, is_thorough: bool, uses_max_workspace: bool) -> ConvSearch:
    """What is asked of the library."""
    size = MOST_WORKSPACE_BYTES if uses_max_workspace else MOST_WORKSPACE_BYTES // 2
    return ConvSearch(count=_COUNT, is_thorough=is_thorough, workspace_bytes=size)


class ConvPlanFinder:
    """Finds plans for one device.

    Args:
        folder: Where plans are kept.
        fingerprint: What tells the device from others.
        open_library: Opens what builds them.
        search: Which of them are asked for.
    """

    def __init__(
        self, folder: Path, fingerprint: str, open_library: Callable[[], ConvLibrary], search: ConvSearch
    ) -> None:
        self._folder, self._fingerprint, self._open_library, self._search = folder, fingerprint, open_library, search

    def find(self, conv: Convolution) -> Sequence[BuiltConvPlan]:
        """Plans for a convolution, the most promising first."""
        library = self._open_library()
        path = self._folder / f"{self._make_key(conv, library.get_version())}.convolution"
        found = read_record(path, FoundPlans)
        if found is None:
            found = FoundPlans(plans=library.build_plans(conv, self._search))
            write_record(path, found)
        return found.plans

    def _make_key(self, conv: Convolution, version: int) -> str:
        parts = (_FORMAT, version, self._fingerprint, astuple(self._search), conv)
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
