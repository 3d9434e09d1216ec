"""Limits of a manifest that its writers must keep too."""

from __future__ import annotations

from typing import Final

__all__ = ["MAX_NAME_CHARS"]

MAX_NAME_CHARS: Final = 65_536
"""The longest name of a tensor, value or step; names of blobs have a limit of their own."""
