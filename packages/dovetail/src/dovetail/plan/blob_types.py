"""How element types of weights are stored in the container: by its own name for them, or as bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dovetail.element_types import ELEMENT_TYPES

__all__ = ["STORED_TYPES"]

STORED_TYPES: Final[Mapping[str, str]] = {each.name: each.container for each in ELEMENT_TYPES if each.container}
"""NumPy name -> the container's name; types it lacks are stored as bytes (U8)."""
