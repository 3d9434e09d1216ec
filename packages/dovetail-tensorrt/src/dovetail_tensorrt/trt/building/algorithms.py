"""Algorithm selectors of version 10: scripts may define and set them, and no build asks one."""

from __future__ import annotations

from typing import Any

from dovetail import StrictAttributes

__all__ = ["IAlgorithm", "IAlgorithmContext", "IAlgorithmIOInfo", "IAlgorithmSelector", "IAlgorithmVariant"]


class IAlgorithmIOInfo(StrictAttributes):
    """Type and strides of a tensor of an algorithm; never made."""

    __slots__ = ()


class IAlgorithmVariant(StrictAttributes):
    """Implementation and tactic of an algorithm; never made."""

    __slots__ = ()


class IAlgorithmContext(StrictAttributes):
    """The layer that an algorithm is for; never made."""

    __slots__ = ()


class IAlgorithm(StrictAttributes):
    """An algorithm for a layer; never made."""

    __slots__ = ()


class IAlgorithmSelector(StrictAttributes):
    """Chooses among algorithms; see ``IBuilderConfig.algorithm_selector``."""

    __slots__ = ()

    def select_algorithms(self, context: IAlgorithmContext, choices: list[IAlgorithm]) -> list[int]:
        """The numbers of the algorithms that may be used."""
        raise NotImplementedError(f"{type(self).__name__} must implement select_algorithms(context, choices)")

    def report_algorithms(self, contexts: list[IAlgorithmContext], choices: list[IAlgorithm]) -> Any:
        """Told which algorithms were chosen."""
