"""Plans of cuDNN for convolutions: built when they are first asked for, and kept on disk beside the kernels."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import astuple
from functools import cached_property
from pathlib import Path
from typing import Final

import msgspec

from dovetail_cuda.compile.store import read_record, write_record
from dovetail_cuda.run.convolutions import BuiltConvPlan, Convolution
from dovetail_cuda.run.cudnn import ConvLibrary, ConvSearch, open_or_warn

__all__ = ["ConvPlanFinder", "FoundPlans"]

_FORMAT: Final = 1
"""Changes when the meaning of a record does, so that no older entry of a store is used."""


class FoundPlans(msgspec.Struct, frozen=True, kw_only=True):
    """What a store keeps for a convolution."""

    plans: list[BuiltConvPlan]


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

    @cached_property
    def _library(self) -> ConvLibrary | None:
        """The library, opened for the first convolution."""
        return open_or_warn(self._open_library)

    def find(self, conv: Convolution) -> Sequence[BuiltConvPlan]:
        """Plans for a convolution, the most promising first."""
        library = self._library
        if library is None:
            return ()
        path = self._folder / f"{self._make_key(conv, library.get_version())}.convolution"
        found = read_record(path, FoundPlans)
        if found is None:
            found = FoundPlans(plans=library.build_plans(conv, self._search))
            write_record(path, found)
        return found.plans

    def _make_key(self, conv: Convolution, version: int) -> str:
        parts = (_FORMAT, version, self._fingerprint, astuple(self._search), conv)
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
