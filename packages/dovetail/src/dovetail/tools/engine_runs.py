"""Running an engine on inputs by name, on the profile that their shapes fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail.runtime.context import ExecutionContext
    from dovetail.runtime.engine import Engine

__all__ = ["EngineRunner", "make_context"]


class EngineRunner:
    """Runs an engine on one sample after the other, with a context for each profile that they need."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._contexts: dict[int | None, ExecutionContext] = {}

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """All outputs by name."""
        profile = find_profile(self._engine, inputs)
        if profile not in self._contexts:
            self._contexts[profile] = make_context(self._engine, inputs)
        results = self._contexts[profile].run(self._engine.copy_updated(list(inputs.values())))
        return {tensor.name: value for tensor, value in zip(self._engine.manifest.outputs, results, strict=True)}


def make_context(engine: Engine, inputs: Mapping[str, Any]) -> ExecutionContext:
    """A context on the first profile that the shapes of the inputs fit, so that nobody has to count profiles."""
    context = engine.create_execution_context()
    profile = find_profile(engine, inputs)
    if profile is not None:
        context.set_optimization_profile_async(profile)
    return context


def find_profile(engine: Engine, inputs: Mapping[str, Any]) -> int | None:
    """The first profile that the shapes of the inputs fit; None where there is none."""
    for index, profile in enumerate(engine.manifest.profiles):
        bounds = ((inputs[name].shape, shapes) for name, shapes in profile.shapes.items())
        if all(_is_within(shape, low, high) for shape, (low, _, high) in bounds):
            return index
    return None


def _is_within(shape: Sequence[int], low: Sequence[int], high: Sequence[int]) -> bool:
    return len(shape) == len(low) and all(a <= n <= b for a, n, b in zip(low, shape, high, strict=True))
