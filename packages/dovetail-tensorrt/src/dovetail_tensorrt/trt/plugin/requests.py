"""Which kind of plugin is wanted where both can be made: compiled ahead of time, or run by Python."""

from __future__ import annotations

from dovetail import ContractEnum

__all__ = ["QuickPluginCreationRequest"]


class QuickPluginCreationRequest(ContractEnum):
    """Nothing, a preference, or a demand.

    >>> QuickPluginCreationRequest.strict(aot=True).name
    'STRICT_AOT'
    """

    UNKNOWN = 0
    PREFER_JIT = 1
    PREFER_AOT = 2
    STRICT_JIT = 3
    STRICT_AOT = 4

    @property
    def wants_aot(self) -> bool:
        """Whether the kernel compiled ahead of time is meant where there is one."""
        return self in (QuickPluginCreationRequest.PREFER_AOT, QuickPluginCreationRequest.STRICT_AOT)

    @staticmethod
    def strict(*, aot: bool) -> QuickPluginCreationRequest:
        """The demand for one of the two."""
        return QuickPluginCreationRequest.STRICT_AOT if aot else QuickPluginCreationRequest.STRICT_JIT
