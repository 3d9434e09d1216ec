"""Who has a node, and what it makes of it: a step of its own, or a part of a compiled partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dovetail.errors import ProviderError
from dovetail.provider.interfaces import Claim, Provider, StepKind

__all__ = ["Owner", "check_kinds"]


class Owner(NamedTuple):
    """Who has a node, and what it makes of it."""

    provider: str
    kind: str = StepKind.NODE

    @property
    def is_compiled(self) -> bool:
        """Whether nodes become partitions."""
        return self.kind == StepKind.PARTITION


def check_kinds(provider: Provider, claims: Sequence[Claim]) -> None:
    """A claim says one of the kinds of steps, and a group, which stays together, has one kind."""
    kinds: dict[str, str] = {}
    for claim in claims:
        kind = claim.step_kind or provider.step_kind
        if kind not in (StepKind.NODE, StepKind.PARTITION):
            raise ProviderError("a claim has an unknown kind of step", expected="node or partition", got=kind)
        if claim.taken and claim.group is not None and kinds.setdefault(claim.group, kind) != kind:
            raise ProviderError(
                f"the claims of group '{claim.group}' have different kinds of steps",
                expected="one kind for all nodes of a group",
            )
