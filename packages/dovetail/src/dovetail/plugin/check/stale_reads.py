"""Stale reads of C++ plugins: which argument of an earlier callback a plugin reads, and in which callback."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.plugin.check.host.calls import journal
from dovetail.plugin.check.isolation.journal import FRESH_SLOT
from dovetail.plugin.interfaces import APILanguage
from dovetail.rules import Blocked, NotApplicable

if TYPE_CHECKING:
    from dovetail.plugin.check.driver import CheckedPlugin

__all__ = ["find_stale_read", "is_cpp", "is_creation_argument"]


def is_cpp(subject: CheckedPlugin) -> bool:
    """Return whether the plugin is a C++ plugin, whose arguments are memory of the host."""
    return getattr(subject.creator, "api_language", None) is APILanguage.CPP


def is_creation_argument(label: str) -> bool:
    """Return whether an argument is one of ``createPlugin``: fields, and the name of the layer."""
    return "field" in label.lower() or label == "the name of the layer"


def find_stale_read(subject: CheckedPlugin, must_guard: Callable[[str], bool]) -> str | None:
    """Find a read of an argument after its callback has returned.

    Args:
        subject: The plugin.
        must_guard: Predicate on the labels of arguments.

    Returns:
        The phase, the callback that reads, and the argument, in words; None without such a read.

    Raises:
        NotApplicable: There are no processes in which a plugin may crash.
    """
    for phase, stored in (("BUILD", None), ("RUNTIME", _find_stored(subject))):
        if phase == "RUNTIME" and stored is None:
            continue
        labels = subject.ask_fresh(subject.main_cell, guarded=(), stored=stored).labels
        wanted = [label for label in labels if must_guard(label)]
        if _ends_process(subject, wanted, stored) is None:
            continue
        for label in wanted:
            callback = _ends_process(subject, [label], stored)
            if callback is not None:
                return f"phase {phase}: {callback} read {label} after the callback that got it had returned"
    return None


def _find_stored(subject: CheckedPlugin) -> list[dict[str, Any]] | None:
    try:
        _ = subject.has_working_revival
        return subject.serialized
    except NotApplicable:
        return None


def _ends_process(subject: CheckedPlugin, labels: Sequence[str], stored: list[dict[str, Any]] | None) -> str | None:
    """Return the callback in which the process ends with these arguments guarded; None where it does not end."""
    try:
        subject.ask_fresh(subject.main_cell, guarded=labels, stored=stored)
    except Blocked:
        return journal().abandon(FRESH_SLOT) or "a callback"
    return None
