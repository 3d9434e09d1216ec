"""A plan with other weights: those of a file that the plan can replace, put in and saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dovetail.errors import DovetailError, UsageError
from dovetail.near_names import name_known, suggest
from dovetail.runtime.engine import Engine
from dovetail.runtime.refit import Refitter

__all__ = ["RefitResult", "refit_engine"]


@dataclass(frozen=True, kw_only=True)
class RefitResult:
    """What happened to each weight."""

    replaced: tuple[str, ...]
    kept: tuple[str, ...]
    """Weights of the plan that the file does not have."""
    excluded: Mapping[str, str]
    """Weights of the file that the plan holds and cannot replace, each with the reason."""
    unknown: tuple[str, ...]
    """Tensors of the file that are no weights of the plan."""


def refit_engine(engine: Engine, weights: Mapping[str, Any], *, where: str) -> RefitResult:
    """Replace the weights of an engine by those of the same names.

    Args:
        engine: What is refitted.
        weights: New values by name.
        where: Where these come from, for messages.

    Raises:
        UsageError: The engine was not built for it, no name agrees, a weight does not fit, or one is still missing.
    """
    refitter = Refitter(engine)
    known = refitter.get_all_weights()
    replaced = [name for name in known if name in weights]
    if not replaced:
        first = next(iter(weights), "")
        raise UsageError(
            "no weight of the plan has a name of the file",
            where=where,
            expected=name_known(known, nothing="no weight at all"),
            got=name_known(weights, nothing="no tensors"),
            fix=suggest(first, known),
        )
    for name in replaced:
        _set(refitter, name, weights[name], where)
    refitter.refit_cuda_engine()
    excluded = {name: reason for name, reason in refitter.excluded_weights.items() if name in weights}
    return RefitResult(
        replaced=tuple(replaced),
        kept=tuple(name for name in known if name not in weights),
        excluded=excluded,
        unknown=tuple(name for name in weights if name not in known and name not in excluded),
    )


def _set(refitter: Refitter, name: str, array: Any, where: str) -> None:
    try:
        refitter.set_named_weights(name, array)
    except DovetailError as error:
        place = f"{where}, {error.where}"
        raise UsageError(error.what, where=place, expected=error.expected, got=error.got, fix=error.fix) from error
