"""R65: A file is looked for in the working directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class ReadsBesideItself(Layer):
    def compute(self, x: Any, y: Any) -> None:
        y[...] = x * np.float32(1 + len(list(Path().glob("*"))))


creator = LayerCreator(ReadsBesideItself)
