"""The version of this package: the one place where it is written down; the wheel and the plan manifest read it here."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.2.0"
