"""Which providers a build uses when nobody says: ONNX Runtime's kernels where it is installed, and always NumPy's."""

from __future__ import annotations

import importlib.util
from functools import cache

__all__ = ["default_providers"]


@cache
def default_providers() -> tuple[str, ...]:
    """Providers in order of preference; nothing is imported."""
    return ("onnxruntime", "cpu") if importlib.util.find_spec("onnxruntime") is not None else ("cpu",)
