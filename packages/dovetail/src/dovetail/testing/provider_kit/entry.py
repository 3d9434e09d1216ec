"""The front door of the kit: a provider by name or by its factory."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from dovetail.errors import DovetailError, UsageError
from dovetail.provider.interfaces import ProviderFactory
from dovetail.provider.loader import get_factory, register_provider, unregister_provider
from dovetail.testing.provider_kit.models import Case
from dovetail.testing.provider_kit.report import ProviderReport
from dovetail.testing.provider_kit.rules.catalogue import registered_rules
from dovetail.testing.provider_kit.runner import judge_all
from dovetail.testing.provider_kit.subject import CheckedProvider

__all__ = ["check_provider"]


def check_provider(
    provider: str | ProviderFactory,
    *,
    model: Any = None,
    inputs: Mapping[str, Any] | None = None,
    options: Mapping[str, str] | None = None,
    tolerance: float = 1e-3,
    rules: Collection[str] | None = None,
) -> ProviderReport:
    """Drive every callback of the provider contract and judge the provider by every rule.

    Args:
        provider: The name of a provider, or a factory, which is registered for as long as this takes.
        model: A model of yours, tried with the kit's own: whatever ``dovetail.compile`` takes.
        inputs: Its inputs, by name; required with a model.
        options: Options to make the provider with.
        tolerance: How far floating-point results may be from those of ``cpu``, relative and absolute; 16-bit types
            may be off by two percent in any case.
        rules: Ids of rules to judge by; all by default.

    Raises:
        ProviderError: There is no provider of that name.
        UsageError: A model came without inputs, or there is no such rule.
    """
    _check_rules(rules)
    own = _own_case(model, inputs)
    settings = {"options": options or {}, "model": own, "tolerance": tolerance}
    if isinstance(provider, str):
        return judge_all(CheckedProvider(get_factory(provider), **settings), rules=rules)  # type: ignore[arg-type]
    problem = _register(provider)
    try:
        return judge_all(CheckedProvider(provider, problem=problem, **settings), rules=rules)  # type: ignore[arg-type]
    finally:
        if problem is None:
            unregister_provider(provider.name)


def _register(factory: ProviderFactory) -> DovetailError | None:
    try:
        register_provider(factory)
    except DovetailError as error:
        return error
    return None


def _own_case(model: Any, inputs: Mapping[str, Any] | None) -> Case | None:
    if model is None:
        return None
    if inputs is None:
        raise UsageError("a model needs inputs to run with", fix="give inputs={name: array, ...}")
    return Case(
        name="your model", text="", shapes=[], model=model, arrays={k: np.asarray(v) for k, v in inputs.items()}
    )


def _check_rules(rules: Collection[str] | None) -> None:
    unknown = set(rules or ()) - {rule.id for rule in registered_rules()}
    if unknown:
        raise UsageError(f"there is no rule {', '.join(sorted(unknown))}", expected="ids such as P01")
