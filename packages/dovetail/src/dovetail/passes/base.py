"""What a pass is: it checks what it needs, changes a model in place, and says what it changed.

onnx-ir has passes of its own that answer only whether anything changed. Ours list what changed, because the builder
shows it and because weights that were folded away must be explained when somebody wants to refit them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import onnx_ir as ir

from dovetail.errors import InternalError
from dovetail.passes._graph import check_model, interface_of

__all__ = ["Pass", "PassResult", "run_passes"]


@dataclass(frozen=True, kw_only=True)
class PassResult:
    """The model, which is the one that was passed in, and one line for each change."""

    model: ir.Model
    changed: list[str] = field(default_factory=list)
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many changes each of several passes made, by name; those that made none are left out."""


class Pass(ABC):
    """A change to a whole model, made in place; its name is what logs call it."""

    name: ClassVar[str]

    def requires(self, model: ir.Model) -> None:
        """Raise when the model is not what the pass can work on; every pass needs one without functions."""
        if model.functions:
            raise InternalError("functions must be expanded before passes run", where=f"pass '{self.name}'")

    @abstractmethod
    def call(self, model: ir.Model) -> PassResult:
        """Change the model."""

    def ensures(self, model: ir.Model) -> None:  # noqa: B027 - a hook, and most passes promise no more than their result
        """Raise when the pass did not do what it promises."""

    def __call__(self, model: ir.Model) -> PassResult:
        """Check, change, check."""
        self.requires(model)
        result = self.call(model)
        if result.model is not model:
            raise InternalError("a pass returned another model than it was given", where=f"pass '{self.name}'")
        self.ensures(model)
        return result


def run_passes(model: ir.Model, passes: Sequence[Pass], *, check: bool = False) -> PassResult:
    """Run passes one after the other.

    Args:
        model: Changed in place; give it ``clone_model(model)`` to keep the original.
        passes: In order.
        check: Whether to check after each pass that the model is whole and has the same inputs and outputs.
    """
    changed: list[str] = []
    counts: Counter[str] = Counter()
    interface = interface_of(model)
    for step in passes:
        lines = step(model).changed
        counts.update([step.name] * len(lines))
        changed += [f"{step.name}: {line}" for line in lines]
        if check:
            check_model(model, interface, where=f"after pass '{step.name}'")
    return PassResult(model=model, changed=changed, counts=counts)
