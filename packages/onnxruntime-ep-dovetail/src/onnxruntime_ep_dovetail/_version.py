"""The version of this package: the one place where it is written down."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.2.0"
