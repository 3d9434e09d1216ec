"""Choices of a plan that nobody has timed, because the device that it was built for was not there."""

from __future__ import annotations

from typing import Final

from dovetail.plan.manifest import LayerRecord, Manifest

__all__ = ["DEVICE_IS_ABSENT", "count_untimed", "describe_untimed"]

DEVICE_IS_ABSENT: Final = "the device that it is for is not here"
"""The reason that the tuner writes into the table of such a choice."""


def count_untimed(manifest: Manifest) -> int:
    """How many choices were made without a time."""
    return sum(_is_untimed(table) for table in manifest.tuning)


def _is_untimed(table: LayerRecord) -> bool:
    chosen = [candidate for candidate in table.candidates if candidate.chosen]
    return any(candidate.status == "untimed" and candidate.reason == DEVICE_IS_ABSENT for candidate in chosen)


def describe_untimed(manifest: Manifest) -> str | None:
    """A sentence about these choices; None where there are none."""
    count = count_untimed(manifest)
    if not count:
        return None
    return f"{count} of {len(manifest.tuning)} choices were not timed: it was built for a device that was not there"
