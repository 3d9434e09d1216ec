"""R40: enqueue leaves the interpreter."""

from __future__ import annotations

import sys
from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class LeavesByExit(Layer):
    def compute(self, x: Any, y: Any) -> None:
        sys.exit("no device")


creator = LayerCreator(LeavesByExit)
