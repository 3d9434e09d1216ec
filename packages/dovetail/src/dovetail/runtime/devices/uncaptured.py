"""Why a step is not part of a captured graph: it runs by itself between two of them, at the cost of its launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dovetail.plan.manifest import StepRecord, ValueRecord
from dovetail.provider.options import Providers

__all__ = ["UncapturedStep", "explain_uncaptured"]

_PLACED_KINDS: Final = frozenset(("input", "output", "planned"))
"""What has memory before the steps run."""


@dataclass(frozen=True, kw_only=True)
class UncapturedStep:
    """A step that is launched anew in every run."""

    step: str
    reason: str


def explain_uncaptured(
    record: StepRecord, values: Sequence[ValueRecord], providers: Providers, *, is_capturable: bool
) -> str | None:
    """Why a step cannot be captured; None where it can: all it touches stays where it is and is what it is.

    Args:
        record: The step.
        values: What it reads and writes.
        providers: Those of the plan.
        is_capturable: Whether the step itself allows it.
    """
    if not providers[record.provider].can_capture:
        return f"provider '{record.provider}' captures nothing"
    if record.kind in ("copy", "control"):
        return f"a {record.kind} step is the host's"
    if not is_capturable and record.kind == "plugin":
        return "its shapes are known only when it has run, or the plugin says so (can_capture)"
    if not is_capturable:
        return "the shapes of its results are known only when it has run, or its provider does not allow it"
    moving = [value for value in values if value.kind != "constant" and value.kind not in _PLACED_KINDS]
    if moving:
        return f"value '{moving[0].name}' has no memory before the run"
    away = [value for value in values if value.kind != "constant" and value.memory != record.provider]
    if away:
        return f"value '{away[0].name}' lies in memory of {away[0].memory or 'the host'}"
    return None
