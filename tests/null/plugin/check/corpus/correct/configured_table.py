"""Works out a table when it is configured, and stores it."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dovetail.plugin.fields import PluginFieldType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class ConfiguredTable(Layer):
    FIELDS: ClassVar[dict[str, Any]] = {"table": (PluginFieldType.FLOAT32, np.zeros(0, np.float32))}
    table: Any

    def configure_plugin(self, in_: Any, out: Any) -> Any:
        self.table = np.linspace(0, 1, 5, dtype=np.float32)

    def compute(self, x: Any, y: Any) -> None:
        y[...] = x * self.table[2] + self.table[4]


creator = LayerCreator(ConfiguredTable)
