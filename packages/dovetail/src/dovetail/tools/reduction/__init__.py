"""What makes a failing model smaller: where it is cut, what is tried, and whether it still fails."""

from __future__ import annotations
