"""Shares a table with its siblings through the registry."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.plugin.interfaces import IPluginResource
from dovetail.plugin.registry import get_plugin_registry
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class Table(IPluginResource):
    def __init__(self) -> None:
        super().__init__()
        self.values: Any = None

    def clone(self) -> Any:
        twin = Table()
        twin.values = np.float32([1, 2, 3])
        return twin

    def release(self) -> Any:
        self.values = None


class SharedResource(Layer):
    table: Any = None

    def attach_to_context(self, resource_context: Any) -> Any:
        twin = self.clone()
        twin.table = get_plugin_registry().acquire_plugin_resource("corpus table", Table())
        return twin

    def clone(self) -> Any:
        twin = super().clone()
        twin.table = None
        return twin

    def compute(self, x: Any, y: Any) -> None:
        y[...] = x * self.table.values[1]

    def destroy(self) -> None:
        if self.table is not None:
            self.table = None
            get_plugin_registry().release_plugin_resource("corpus table")


creator = LayerCreator(SharedResource)
