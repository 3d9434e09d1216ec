"""A function with a decorator."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.plugin.quick import layer


@layer("corpus_softsign")
def softsign(x: Any) -> Any:
    return x / (1 + np.abs(x))
