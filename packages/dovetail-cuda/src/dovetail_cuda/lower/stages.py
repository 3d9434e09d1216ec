"""Operators that take several kernels, one after the other, such as a sort or a recurrent layer.

Such an operator says what its steps are, and stores between them what the next one reads. Its outputs share the steps:
they are written down when the first of the outputs is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dovetail_cuda.lower.tensors import Anchor, Lowered, Tensor

__all__ = ["StagedTensor", "Store", "make_staged"]

Store = Callable[[str, Lowered], Tensor]
"""Has a step written to memory, under a name that the operator uses once, and gives it as it is read from there."""
Steps = Callable[[Store], Sequence[Tensor]]
"""The steps of an operator: gives its outputs."""


class _Shared:
    """The outputs of an operator, computed once."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._outputs: Sequence[Tensor] | None = None

    def read(self, store: Store) -> Sequence[Tensor]:
        if self._outputs is None:
            self._outputs = self._steps(store)
        return self._outputs


@dataclass(frozen=True, kw_only=True, eq=False)
class StagedTensor(Anchor):
    """One output of an operator that takes several kernels."""

    shared: _Shared
    number: int

    def read(self, store: Store) -> Tensor:
        """The output, after the steps before it are stored."""
        return self.shared.read(store)[self.number]


def make_staged(specs: Sequence[tuple[Sequence[int], str]], steps: Steps) -> tuple[StagedTensor, ...]:
    """The outputs of an operator by their shapes and types."""
    shared = _Shared(steps)
    return tuple(
        StagedTensor(shape=tuple(shape), dtype=dtype, shared=shared, number=number)
        for number, (shape, dtype) in enumerate(specs)
    )
