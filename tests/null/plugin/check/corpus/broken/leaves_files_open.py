"""R58: Each run opens a file and leaves it open."""

from __future__ import annotations

import os
from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator

_FILES: list[Any] = []


class LeavesFilesOpen(Layer):
    def compute(self, x: Any, y: Any) -> None:
        _FILES.append(os.open(os.devnull, os.O_RDONLY))
        y[...] = x


creator = LayerCreator(LeavesFilesOpen)
