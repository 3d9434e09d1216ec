"""Algorithm selectors of version 10: scripts may define and set them, and no build asks one."""

from __future__ import annotations

from typing import Any

__all__ = ["IAlgorithm", "IAlgorithmContext", "IAlgorithmIOInfo", "IAlgorithmSelector", "IAlgorithmVariant"]


class IAlgorithmIOInfo:
    """Type and strides of a tensor of an algorithm; never made."""


class IAlgorithmVariant:
    """Implementation and tactic of an algorithm; never made."""


class IAlgorithmContext:
    """The layer that an algorithm is for; never made."""


class IAlgorithm:
    """An algorithm for a layer; never made."""


class IAlgorithmSelector:
    """Chooses among algorithms; see ``IBuilderConfig.algorithm_selector``."""

    def select_algorithms(self, context: IAlgorithmContext, choices: list[IAlgorithm]) -> list[int]:
        """The numbers of the algorithms that may be used."""
        raise NotImplementedError(f"{type(self).__name__} must implement select_algorithms(context, choices)")

    def report_algorithms(self, contexts: list[IAlgorithmContext], choices: list[IAlgorithm]) -> Any:
        """Told which algorithms were chosen."""
