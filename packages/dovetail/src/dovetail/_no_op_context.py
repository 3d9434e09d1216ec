"""``with`` over objects that need none, because scripts written for the contract still say it."""

from __future__ import annotations

import warnings
from typing import Self

__all__ = ["NoOpContext"]


class NoOpContext:
    """Warns when it is entered, and has no effect."""

    __slots__ = ()

    def __enter__(self) -> Self:
        name = type(self).__name__
        warnings.warn(f"{name} is no context manager: it is freed when unused", DeprecationWarning, stacklevel=2)
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing: see ``__enter__``."""
